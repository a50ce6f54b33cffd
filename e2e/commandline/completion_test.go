package commandline_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/icmd"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
)

// completions has what people type, and what a shell must offer for it among other things.
var completions = map[string]struct{ line, want string }{
	"commands":                        {"sandbox-broker pro", "providers"},
	"commands below commands":         {"sandbox-broker config cont", "context"},
	"flags":                           {"sandbox-broker ps --all", "--all-tenants"},
	"values of flags":                 {"sandbox-broker ps --output wi", "wide"},
	"sessions":                        {"sandbox-broker exec {begun}", "{session}"},
	"sessions behind flags":           {"sandbox-broker logs -f {begun}", "{session}"},
	"providers":                       {"sandbox-broker create --provider self", "self_managed"},
	"arguments of a default command":  {"sandbox-broker tenants --outp", "--output"},
	"contexts":                        {"sandbox-broker ps --context wo", "work"},
	"files":                           {"sandbox-broker run prog", "program.py"},
	"values that are attached by '='": {"sandbox-broker ps --output=js", "json"},
}

// offered asks for what a shell offers, one a line.
func offered(t *testing.T, p *person, shell, script, line string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "script")
	assert.NilError(t, os.WriteFile(file, []byte(script), 0o600))
	result := icmd.RunCmd(icmd.Command(shell, file), icmd.WithEnv(append(slices.Clone(p.env), "LINE="+line)...), icmd.Dir(p.home))
	assert.NilError(t, result.Error, result.Combined())
	return strings.Fields(result.Stdout())
}

func completes(t *testing.T, shell, script string, values func(offered []string) []string) {
	t.Helper()
	b := real.Broker(t)
	p := newPerson(t, b)
	p.says("config", "context", "set", "work", "--address", b.URL)
	assert.NilError(t, os.WriteFile(filepath.Join(p.home, "program.py"), nil, 0o600))
	session := "completed-by-" + shell
	names := strings.NewReplacer("{session}", session, "{begun}", session[:len(session)-1])
	p.says("create", "--session", session, "--template", "bash")
	p.does(0, "x", "cp", "-", session+":input/data.csv")
	for name, c := range completions {
		t.Run(name, func(t *testing.T) {
			got := values(offered(t, p, shell, script, names.Replace(c.line)))
			// Some shells offer what stands before the value with it.
			assert.Check(t, slices.ContainsFunc(got, func(word string) bool { return strings.HasSuffix(word, names.Replace(c.want)) }), "%q", got)
		})
	}
	t.Run("nothing for what is not there", func(t *testing.T) {
		assert.DeepEqual(t, values(offered(t, p, shell, script, "sandbox-broker exec no-such-")), []string{})
	})
	t.Run("paths in an instance", func(t *testing.T) {
		got := values(offered(t, p, shell, script, "sandbox-broker cp "+session+":inp"))
		assert.Check(t, len(got) == 1 && strings.HasSuffix(got[0], "input/"), "%q", got)
		got = values(offered(t, p, shell, script, "sandbox-broker cp "+session+":input/"))
		assert.Check(t, len(got) == 1 && strings.HasSuffix(got[0], "input/data.csv"), "%q", got)
	})
	p.says("rm", "-f", session)
}

func TestBashCompletes(t *testing.T) {
	t.Parallel()
	binaries.Needs(t, "bash", "bash")
	completes(t, "bash", `
source <(sandbox-broker completion bash)
complete -p sandbox-broker >/dev/null || exit 1
COMP_LINE=$LINE COMP_POINT=${#LINE}
_sandbox_broker 2>/dev/null
printf '%s\n' "${COMPREPLY[@]}"
`, func(offered []string) []string { return offered })
}

func TestFishCompletes(t *testing.T) {
	t.Parallel()
	binaries.Needs(t, "fish", "fish")
	completes(t, "fish", `
sandbox-broker completion fish | source
complete --do-complete "$LINE" | string replace --regex '\t.*' ''
true
`, func(offered []string) []string { return offered })
}

// What is typed at a real shell, with the key for completion, comes to what was meant.
func TestWhatIsTypedIsCompleted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rc   string // the file that it reads at its start
		args []string
		text string
	}{
		"bash": {"rc", []string{"--rcfile", "rc", "-i"}, "PS1='ready: '\nbind 'set bell-style none'\nsource <(sandbox-broker completion bash)\n"},
		"zsh":  {".zshrc", []string{"-i"}, "PS1='ready: '\nautoload -Uz compinit\ncompinit -D -u\nunsetopt beep\nsource <(sandbox-broker completion zsh)\n"},
		// As packages install it: a file that is read at the first use.
		"zsh, a file": {".zshrc", []string{"-i"}, "PS1='ready: '\nmkdir -p $HOME/functions; sandbox-broker completion zsh >$HOME/functions/_sandbox-broker\nfpath=($HOME/functions $fpath)\nautoload -Uz compinit\ncompinit -D -u\nunsetopt beep\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shell, _, file := strings.Cut(name, ",")
			binaries.Needs(t, shell, shell)
			p := newPerson(t, real.Broker(t))
			p.env = append(p.env, "ZDOTDIR="+p.home)
			session := "typed-at-" + shell
			if file {
				session = "typed-at-file"
			}
			p.says("create", "--session", session, "--template", "bash")
			p.does(0, "hello", "cp", "-", session+":input/greeting")
			assert.NilError(t, os.WriteFile(filepath.Join(p.home, c.rc), []byte(c.text), 0o600))
			s := p.starts(exec.CommandContext(t.Context(), shell, c.args...))
			s.sees("ready: ")
			s.types("sandbox-broker exec " + session[:len(session)-2] + "\t-- echo completed $((6*7))\r")
			s.sees("completed 42\r\n")
			s.types("sandbox-broker cp " + session + ":inp\tgree\t- | tr a-z A-Z\r")
			s.sees("HELLO")
			s.types("sandbox-broker ps --sess\t" + session + " --out\tna\t | tr a-z A-Z\r")
			s.sees("ACME:" + strings.ToUpper(session) + ":")
			s.types("exit\r")
			s.ends()
			p.says("rm", "-f", session)
		})
	}
}
