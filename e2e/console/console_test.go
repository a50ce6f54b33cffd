package console_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/icmd"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/chromium"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// adminToken is the administrator's.
const adminToken = "the-administrators-token-0123456789"

// mockPlugin is the path of a provider that does what tests tell it to.
var mockPlugin string

func TestMain(m *testing.M) {
	path, remove, err := binaries.BuildMock()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	mockPlugin = path
	code := m.Run()
	remove()
	os.Exit(code)
}

// startBroker starts one with an administrator and sandboxes on this machine, and with further
// blocks.
func startBroker(t *testing.T, further ...string) *harness.Broker {
	t.Helper()
	bin := binaries.Dir(t)
	return harness.Start(t, harness.Options{
		Config: fmt.Sprintf("key_file = \"sealing.keys\"\nproviders { active = \"self_managed\" }\nadmin { token_sha256 = [\"%x\"] }\n", sha256.Sum256([]byte(adminToken))) + harness.Tenants +
			fmt.Sprintf("provider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 1\n  memory_mb = 256\n}\n", binaries.Runsc(t)) + strings.Join(further, ""),
		Plugins: map[string]string{"mock": mockPlugin},
		Prepare: func(dir string) {
			icmd.RunCommand(filepath.Join(bin, "sandbox-broker"), "keygen", filepath.Join(dir, "sealing.keys")).Assert(t, icmd.Success)
		},
	})
}

// Who has never seen it does all that an administrator does, by what the page says.
func TestAnAdministratorWhoHasReadNothing(t *testing.T) {
	b, p := startBroker(t), startPage(t)
	const providersSecret = "not-for-any-page-0123456789"

	// A wrong token is refused, and says so.
	p.Open(b.URL + "/admin")
	p.picture("sign-in")
	p.fill("Token of an administrator", "a-wrong-token")
	p.click("Sign in")
	p.Sees("SB011")
	p.signIn(b.URL, adminToken)
	p.Sees("self_managed")
	p.Sees("ready")

	// A tenant, whose token is shown once.
	p.view("Tenants")
	p.click("Add a tenant")
	p.fill("Name", "newcomer")
	p.fill("Instances", "3")
	p.click("Add")
	p.Sees("Token of newcomer")
	p.picture("token")
	p.click("Show")
	token := chromium.Evaluate[string](p.Page, "document.querySelector('.once').textContent")
	assert.Assert(t, len(token) > 20, "%q", token)
	p.click("I have kept it")
	p.Sees("0 of 3")
	assert.Equal(t, b.Do(http.MethodGet, "/api/v1/usage", token, nil).Status, http.StatusOK)
	p.picture("tenants")

	// A provider with a secret: what it changes is shown before.
	p.view("Providers")
	p.click("Add a provider")
	p.fill("Label", "cloud")
	p.fill("Secret", providersSecret)
	p.click("Look at the change")
	p.Sees("What would change")
	p.Sees("+provider \"cloud\"")
	assert.Check(t, !strings.Contains(chromium.Evaluate[string](p.Page, "document.querySelector('.difference').textContent"), providersSecret))
	p.picture("difference")
	p.click("Apply")
	p.Until("!document.querySelector('dialog[open]')", "the dialogs stay open")
	p.Sees("cloud")
	p.picture("providers")
	text, err := os.ReadFile(b.ConfigFile())
	assert.NilError(t, err)
	assert.Check(t, is.Contains(string(text), "sealed("))
	assert.Check(t, !strings.Contains(string(text), providersSecret))

	// What another administrator does meanwhile is told, and what was typed stays.
	p.click("cloud")
	p.fill("Secret", providersSecret+"-2")
	added := b.Do(http.MethodPost, "/api/admin/sandbox/tenants", adminToken, map[string]any{"name": "meanwhile"})
	assert.Equal(t, added.Status, http.StatusCreated, "%s", added.Body)
	p.click("Look at the change")
	p.click("Load the settings in force")
	p.Until("![...document.querySelectorAll('button')].some(b => b.textContent === 'Load the settings in force')", "the failure stays")
	p.click("Look at the change")
	p.Sees("What would change")
	p.click("Back")
	p.click("Undo")

	// Code, with files and a terminal.
	p.view("Try it")
	p.fill("Token of a tenant", token)
	p.click("Go on")
	p.Sees("As tenant newcomer")
	p.click("Run")
	p.Sees("succeeded")
	assert.Check(t, is.Contains(chromium.Evaluate[string](p.Page, "document.querySelector('.output').textContent"), "gvisor"))
	p.Sees("/workspace/artifacts")
	p.picture("try")
	p.click("Open a terminal")
	p.Until("!!document.querySelector('.xterm-screen')", "there is no terminal")
	p.Until("document.querySelector('.xterm-accessibility')?.textContent.includes('$')", "there is no prompt")
	p.Do(chromedp.KeyEvent("echo ty\"\"ped > /workspace/typed; cat /workspace/ty*\r"))
	p.Until("document.querySelector('.xterm-accessibility')?.textContent.includes('typed')", "the terminal does not answer")
	p.picture("terminal")
	p.click("Close")

	// The instance is there, and is killed.
	p.view("Instances")
	p.fill("Tenant", "newcomer")
	p.Sees("try-")
	id := chromium.Evaluate[string](p.Page, "document.querySelector('tbody button').getAttribute('aria-label').replace('Details of ', '')")
	p.click("Details of " + id)
	p.Sees("Memory")
	p.picture("instance")
	p.click("Kill")
	p.Sees("Kill the instance?")
	p.click("Kill")
	p.Sees("No such instance lives.")
	assert.Equal(t, b.Do(http.MethodGet, "/api/v1/instances/"+id, token, nil).Status, http.StatusNotFound)

	// Who did it stands in the audit log.
	p.view("Audit log")
	p.fill("Instance", id)
	p.click("Search")
	p.Until("[...document.querySelectorAll('tbody tr')].some(r => /administrator|admin/.test(r.textContent) && /destroy|kill/.test(r.textContent))", "the killing is not there")
	p.Sees("The chain is whole")
	p.picture("audit")

	// What was changed is there, and the way back.
	p.view("Configuration")
	p.click("Roll back to generation 2")
	p.Sees("-provider \"cloud\"")
	p.picture("roll-back")
	p.click("Apply")
	p.Until("!document.querySelector('dialog[open]')", "the dialog stays open")
	text, err = os.ReadFile(b.ConfigFile())
	assert.NilError(t, err)
	assert.Check(t, !strings.Contains(string(text), "cloud"))
	p.picture("configuration")
	p.view("Overview")
	p.Until("document.querySelectorAll('.chart canvas').length > 2", "there are no charts")
	p.picture("overview")

	t.Run("no secret is left", func(t *testing.T) {
		reach := p.inReach()
		for name, secret := range map[string]string{"administrator's token": adminToken, "tenant's token": token, "provider's secret": providersSecret} {
			assert.Check(t, !strings.Contains(reach, secret), "the %s is in the page", name)
			assert.Check(t, !strings.Contains(b.Log(), secret), "the %s is in the log", name)
		}
	})
	assert.DeepEqual(t, p.Complaints(), []string(nil))
}

// All that a secret passes by is looked through for it, also where signing in failed.
func TestNoSecretIsLeftInThePage(t *testing.T) {
	b, p := startBroker(t), startPage(t)
	p.signIn(b.URL, adminToken)
	p.view("Try it")
	p.fill("Token of a tenant", harness.Token)
	p.click("Go on")
	p.Sees("As tenant acme")
	p.view("Providers")
	p.Sees("Self Managed")
	for _, secret := range []string{adminToken, harness.Token} {
		assert.Check(t, !strings.Contains(p.inReach(), secret))
	}
	assert.Equal(t, chromium.Evaluate[string](p.Page, "document.cookie"), "")
	assert.Equal(t, chromium.Evaluate[int](p.Page, "localStorage.length + sessionStorage.length"), 0)
	p.click("Sign out")
	p.Sees("Token of an administrator")
	for _, secret := range []string{adminToken, harness.Token} {
		assert.Check(t, !strings.Contains(p.inReach(), secret))
	}
	// Who goes back finds nothing: a page that is loaded anew knows no token.
	p.Open(b.URL + "/admin/tenants")
	p.Sees("Token of an administrator")
}

// Tenants choose names of sessions and labels, and code what it prints.
func TestNothingThatIsShownBecomesMarkup(t *testing.T) {
	b, p := startBroker(t), startPage(t)
	const markup = `<img src=x onerror="window.taken=1"><script>window.taken=1</script>`
	made := b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{
		"session_id": "hostile", "language": "python", "labels": map[string]string{"note": markup}, "wait_ms": 10000,
	})
	assert.Assert(t, made.Status < 300, "%s", made.Body)
	p.signIn(b.URL, adminToken)
	p.view("Instances")
	p.Sees("hostile")
	p.click(chromium.Evaluate[string](p.Page, "document.querySelector('tbody button').getAttribute('aria-label')"))
	p.Sees(markup)
	p.click("Close")
	p.view("Try it")
	p.fill("Token of a tenant", harness.Token)
	p.click("Go on")
	p.fill("Code", "print("+fmt.Sprintf("%q", markup)+")")
	p.click("Run")
	p.Sees("succeeded")
	assert.Check(t, is.Contains(chromium.Evaluate[string](p.Page, "document.querySelector('.output').textContent"), markup))
	assert.Check(t, chromium.Evaluate[bool](p.Page, "window.taken === undefined && !document.querySelector('img[src=x]')"))
	assert.DeepEqual(t, p.Complaints(), []string(nil))
}

// Everybody can use it: by keys, with a screen reader, on a small screen, in the dark.
func TestEverybodyCanUseThePage(t *testing.T) {
	b := startBroker(t, "provider \"spare\" { plugin = \"mock\" }\nprovider \"aside\" { plugin = \"mock\" }\n")
	p, checker := startPage(t), chromium.Checker(t, filepath.Join("..", ".."))
	check := func(name string) {
		t.Helper()
		p.Accessible(t, checker, name)
	}
	for _, screen := range []struct {
		name   string
		width  int64
		scheme string
	}{{"large and light", 1280, "light"}, {"small and dark", 360, "dark"}} {
		p.Screen(screen.width, 780, screen.scheme)
		p.Open(b.URL + "/admin")
		p.Sees("Sign in")
		check(screen.name + ": sign in")
		p.fill("Token of an administrator", adminToken)
		p.click("Sign in")
		for _, view := range []string{"Overview", "Providers", "Tenants", "Instances", "Audit log", "Configuration", "Try it"} {
			p.view(view)
			p.Until("!document.body.innerText.includes('Please wait.')", "it waits")
			check(screen.name + ": " + view)
			p.picture(strings.ReplaceAll(strings.ToLower(screen.name+" "+view), " ", "-"))
		}
		p.view("Tenants")
		p.click("Add a tenant")
		check(screen.name + ": a dialog")
		p.Do(chromedp.KeyEvent("\x1b"))
		p.Until("!document.querySelector('dialog[open]')", "Escape closes no dialog")
	}
	assert.DeepEqual(t, p.Complaints(), []string(nil))
}

func TestTheDocumentOfTheAPIIsShown(t *testing.T) {
	b, p := startBroker(t), startPage(t)
	p.Open(b.URL + "/docs#?route=get-/api/v1/usage")
	// The viewer keeps its parts in a tree of its own.
	const parts = `(function parts(of) { return [...of.querySelectorAll('*')].flatMap(e => [e, ...(e.shadowRoot ? parts(e.shadowRoot) : [])]) })(document)`
	button := func(text string) string {
		return fmt.Sprintf("%s.find(e => e.tagName === 'BUTTON' && e.textContent.trim() === %s)", parts, chromium.Quoted(text))
	}
	p.Until("!!"+button("EXECUTE"), "nothing can be tried")
	p.picture("api")
	chromium.Evaluate[bool](p.Page, button("EXECUTE")+".click(); true")
	p.Until(parts+".some(e => e.children.length === 0 && e.textContent.includes('SB011'))", "nobody is told that a token is needed")
	assert.Equal(t, chromium.Evaluate[int](p.Page, "localStorage.length + sessionStorage.length"), 0)
	assert.DeepEqual(t, p.Complaints(), []string(nil))
	for _, path := range []string{"/docs", "/admin", "/admin"} {
		p.Open(b.URL + path)
		_ = p.Picture() // nothing is painted that nobody looks at
		t.Logf("first contentful paint of %s: %.0f ms", path, chromium.Evaluate[float64](p.Page, `performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1`))
	}
}
