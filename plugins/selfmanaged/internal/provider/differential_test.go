package provider

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

//go:embed testdata/differential.txt
var differential string

// differentialPage documents in which ways an execution differs from `python3 main.py`.
const differentialPage = "../../../../docs/providers/self_managed.md"

// differentialProgram is a section of testdata/differential.txt.
type differentialProgram struct {
	name string
	// differs is a phrase of the documentation, or "" for a program that must do the
	// same either way.
	differs string
	code    string
}

func differentialPrograms(t *testing.T) (list []differentialProgram) {
	t.Helper()
	names := map[string]bool{}
	_, sections, found := strings.Cut("\n"+differential, "\n=== ")
	assert.Assert(t, found)
	for section := range strings.SplitSeq(sections, "\n=== ") {
		name, code, _ := strings.Cut(strings.TrimSuffix(section, "\n")+"\n", "\n")
		p := differentialProgram{name: name, code: code}
		if rest, ok := strings.CutPrefix(code, "differs: "); ok {
			p.differs, p.code, _ = strings.Cut(rest, "\n")
		}
		assert.Assert(t, !names[name], "two programs are called %q", name)
		names[name] = true
		list = append(list, p)
	}
	return list
}

// behaviour is what the caller of a program sees of it.
type behaviour struct {
	Exit           int
	Stdout, Stderr string
}

func (b behaviour) String() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s\n--- stderr\n%s\n", b.Exit, b.Stdout, b.Stderr)
}

// address is where Python shows where an object lies.
var address = regexp.MustCompile(`\b0x[0-9a-f]{6,16}\b`)

// took is where unittest says how long it has taken.
var took = regexp.MustCompile(`(?m)^(Ran \d+ tests? in )\d+\.\d+s$`)

func newBehaviour(exit int, stdout, stderr string) behaviour {
	comparable := func(text string) string {
		return took.ReplaceAllString(address.ReplaceAllString(text, "0xADDRESS"), "${1}TIME")
	}
	return behaviour{exit, comparable(stdout), comparable(stderr)}
}

var everyProgram = flag.Bool("differential", false, "compare all programs in a forked interpreter with a fresh one, and not a part")

// A program in a forked interpreter does what it does as a file that python3 is given,
// but for what the documentation says.
func TestAForkedInterpreterIsLikeAFreshOne(t *testing.T) {
	tier.Full(t)
	programs := differentialPrograms(t)
	assert.Assert(t, len(programs) >= 300, "%d programs", len(programs))
	page, err := os.ReadFile(filepath.FromSlash(differentialPage))
	assert.NilError(t, err)
	documented := strings.Join(strings.Fields(string(page)), " ")

	// All take minutes: each starts Python twice. A part is run unless all are asked for, with
	// all that differ.
	if !*everyProgram {
		n, one := 0, 3
		if testing.Short() {
			one = 6
		}
		programs = slices.DeleteFunc(programs, func(program differentialProgram) bool {
			n++
			return program.differs == "" && n%one != 0
		})
	}

	const limit = 30 * time.Second
	p := newProvider(t, nil)
	forkedIn, plainIn := create(t, p, templatePython), create(t, p, templatePython)
	forked := func(t *testing.T, code string) behaviour {
		o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: forkedIn, Language: sdk.Python, Code: code, Timeout: limit})
		assert.Check(t, err)
		assert.Check(t, o.Status != sdk.StatusTimeout, "timeout")
		return newBehaviour(o.ExitCode, o.stdout, o.stderr)
	}
	plain := func(t *testing.T, code string) behaviour {
		_, err := p.WriteFile(t.Context(), sdk.WriteFileRequest{InstanceID: plainIn, Path: "main.py"}, strings.NewReader(code))
		assert.Check(t, err)
		c := runCommand(t, p, sdk.CommandRequest{InstanceID: plainIn, Argv: []string{"python3", "/workspace/main.py"}, Timeout: limit})
		assert.Check(t, c.State != sdk.CommandTimeout, "timeout")
		return newBehaviour(c.ExitCode, c.stdout, c.stderr)
	}
	for _, program := range programs {
		t.Run(program.name, func(t *testing.T) {
			var wg sync.WaitGroup
			var got, want behaviour
			wg.Go(func() { got = forked(t, program.code) })
			wg.Go(func() { want = plain(t, program.code) })
			wg.Wait()
			if program.differs == "" {
				assert.Equal(t, want.String(), got.String())
				return
			}
			assert.Check(t, strings.Contains(documented, program.differs), "the documentation does not say %q", program.differs)
			assert.Check(t, got != want, "there is no difference any more: %+v", got)
		})
	}
}
