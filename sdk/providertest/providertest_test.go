package providertest_test

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/fs"

	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest/internal/local"
)

// patience is that of a machine which others use too.
const patience = 2

// world is what the provider of the tests needs around it.
type world struct{ backend, packages string }

func newWorld(t *testing.T) world {
	t.Helper()
	for program, debianPackage := range map[string]string{"python3": "python3", "node": "nodejs", "bash": "bash", "setsid": "util-linux"} {
		if _, err := exec.LookPath(program); err != nil {
			missing := "there is no " + program + ": apt-get install " + debianPackage
			assert.Assert(t, os.Getenv("CI") == "", missing)
			t.Skip(missing)
		}
	}
	dir := fs.NewDir(t, "world", fs.WithFile("backend", ""), fs.WithDir("packages", fs.WithDir("first", fs.WithFile("__init__.py", ""))), fs.WithDir("template", fs.WithFile("of-the-template", "")))
	return world{dir.Join("backend"), dir.Join("packages")}
}

// options describe the provider of the tests to the suite.
func (w world) options() []providertest.Option {
	skipped := func(pattern, reason string) providertest.Option {
		return providertest.WithSkip(regexp.MustCompile(pattern), reason)
	}
	return []providertest.Option{
		providertest.WithPatience(patience),
		providertest.WithSettings(map[string]any{"token": "a-secret-of-the-settings", "backend": w.backend, "packages": w.packages}),
		providertest.WithBreakage(w.break_),
		providertest.WithRequirement(sdk.Python, providertest.Requirement{Name: "first", Code: "import first"}),
		providertest.WithTemplate(providertest.Template{
			Request:  sdk.BuildTemplateRequest{Rootfs: filepath.Join(filepath.Dir(w.backend), "template")},
			Language: sdk.Bash, Code: "[ -e of-the-template ]",
		}),
		skipped("code starts in /workspace|commands/it starts in /workspace|a temporary file of one instance|^contexts/.*/it starts in the directory", "its instances have no file system of their own"),
		skipped("ports/a port is one of its instance", "its instances have no network of their own"),
	}
}

// break_ moves the file away that stands for the back end.
func (w world) break_(context.Context) (func(context.Context) error, error) {
	away := filepath.Join(filepath.Dir(w.backend), "away")
	return func(context.Context) error { return os.Rename(away, w.backend) }, os.Rename(w.backend, away)
}

func TestMain(m *testing.M) {
	// They wait more than they compute. -parallel says otherwise.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	flag.Parse()
	goleak.VerifyTestMain(m)
}

func TestAProviderThatKeepsItsPromisesPasses(t *testing.T) {
	t.Parallel()
	// Side by side, each on a provider of its own: most of it is waiting.
	parts := []string{"^deadlines/", "^(execute|set_ttl|contexts|interrupt|backend)/", "^(streams|arguments|lifecycle)/", "^(snapshots|network|commands|metrics)/"}
	for i, part := range append(parts, "the others") {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			// It makes the waits of these longer, and elsewhere only a failure late.
			options := append(newWorld(t).options(), providertest.WithPatience(4))
			if i < len(parts) {
				options = append(options, providertest.WithOnly(regexp.MustCompile(part)))
			} else {
				options = append(options, providertest.WithSkip(regexp.MustCompile(strings.Join(parts, "|")), "it is in another part"))
			}
			if testing.Short() {
				options = append(options, providertest.WithSkip(regexp.MustCompile("/(javascript|bash)/"), tier.Reason))
			}
			providertest.Run(t, local.New, options...)
		})
	}
}

func TestThereAreManyCasesWithNamesOfTheirOwn(t *testing.T) {
	seen, sentences := map[string]bool{}, map[string]bool{}
	for _, c := range providertest.Cases() {
		assert.Assert(t, !seen[c.String()], c.String())
		seen[c.String()] = true
		sentences[c.Group+"/"+c.Name] = true
	}
	assert.Assert(t, len(sentences) >= 250, "%d", len(sentences))
}
