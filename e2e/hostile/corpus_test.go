package hostile_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/dockerengine"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/hostile"
)

var all = flag.Bool("all", false, "run every program on every runtime, as make corpus does; otherwise every third runs on docker, and with -short an eighth on runsc alone")

// Every program of the corpus ends as it must, on every runtime, and nothing
// outside of its sandbox changes. In the sandbox of either runtime is the same kernel; what
// an engine sets up around it, a third of the programs see as well as all.
func TestTheCorpus(t *testing.T) {
	every, first := 3, 1
	switch {
	case *all:
		every = 1
	case testing.Short():
		first = 8
	}
	t.Run("runsc", func(t *testing.T) {
		needsRoot(t)
		runCorpus(t, "runsc", first, fmt.Sprintf("cgroups = \"required\"\n  runsc = %q", binaries.Runsc(t)))
	})
	if testing.Short() && !*all {
		return
	}
	t.Run("docker", func(t *testing.T) {
		needsRoot(t)
		runCorpus(t, "docker", every, fmt.Sprintf("runtime = \"docker\"\n  docker_host = %q", dockerengine.Find(t).Host))
	})
}

// surprises is what programs did that they must not. It is told once more at the very
// end, where the log of a broker does not hide it.
var surprises lines

type lines struct {
	sync.Mutex
	all []string
}

func (l *lines) add(line string) {
	l.Lock()
	defer l.Unlock()
	l.all = append(l.all, line)
}

func TestMain(m *testing.M) {
	status := m.Run()
	for _, line := range surprises.all {
		fmt.Println(line)
	}
	os.Exit(status)
}

// needsRoot skips what an ordinary user cannot prove, and fails in CI.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	const text = "the corpus runs as root: the host's limits are part of what it proves"
	if os.Getenv("CI") != "" {
		t.Fatal(text)
	}
	t.Skip(text)
}

// limits of the sandboxes: small, so that bombs are quick.
const limits = `
  pool_size    = 4
  memory_mb    = 256
  workspace_mb = 32
  processes    = 64
  one_shot     = "tenant"
`

// lanes is how many instances of each language the programs of themes that need
// none of their own take turns in.
const lanes = 2

// heldPort is where programs listen that hold; nobody may see it on the host.
const heldPort = 47110

type corpus struct {
	broker *harness.Broker
	canary *canaries
	env    map[string]string
	lanes  map[string]chan string // sessions, by language

	oneShots sync.Mutex // held by who has the one-shots of the tenant to himself
}

// runCorpus runs every so many programs of the corpus.
func runCorpus(t *testing.T, name string, every int, settings string) {
	programs, err := hostile.Programs()
	assert.NilError(t, err)
	began := time.Now()
	canary := plant(t)
	b := harness.Start(t, harness.Options{
		Config: harness.Tenants + "provider \"self_managed\" {" + limits + "  " + settings + "\n}\n",
	})
	c := &corpus{broker: b, canary: canary, env: canary.env(t), lanes: map[string]chan string{}}
	for _, language := range []string{"python", "javascript", "bash"} {
		c.lanes[language] = make(chan string, lanes)
		for i := range lanes {
			c.lanes[language] <- fmt.Sprintf("lane-%s-%d", language, i)
		}
	}
	var passed, failed atomic.Int64
	t.Run("programs", func(t *testing.T) {
		for i, p := range programs {
			if theme := themeOf(p); theme.Snapshots || theme.WaysOut || i%every != 0 { // see doc.go
				continue
			}
			t.Run(p.Theme+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() {
					if t.Failed() {
						failed.Add(1)
					} else {
						passed.Add(1)
					}
				})
				c.run(t, p)
			})
		}
	})
	canary.unharmed(t)
	assert.Check(t, drift(began) < time.Minute, "somebody set the clock of the host")
	assert.Check(t, is.Equal(b.Stop(), 0))
	b.WaitGone()
	assert.Check(t, is.Len(b.Groups(), 0), "cgroups are left")
	fmt.Printf("corpus %s: %d passed, %d failed\n", name, passed.Load(), failed.Load())
}

// run runs one program, and then makes sure that the provider serves on.
func (c *corpus) run(t *testing.T, p hostile.Program) {
	s := &scene{corpus: c, program: p, session: p.Theme + "-" + strings.ReplaceAll(p.Name, ".", "-")}
	if slices.ContainsFunc(p.Steps, ofOneShots) {
		s.oneShot(t)
		return
	}
	theme := themeOf(p)
	if theme.Fresh {
		// It may have ended already, or never begun.
		t.Cleanup(func() { c.broker.Do(http.MethodDelete, "/api/v1/instances/"+s.instance, harness.Token, nil) })
	} else {
		s.session = <-c.lanes[p.Language]
		t.Cleanup(func() { c.lanes[p.Language] <- s.session })
	}
	if theme.Forked {
		e := decode(t, s.postIn("python", hostile.Step{Code: "pass", Timeout: time.Minute}, harness.Token, s.session, nil))
		assert.Check(t, is.Equal(e.Status, "succeeded"))
	}
	first := p.Steps[0]
	if !s.holds() {
		e := s.execute(t, first, harness.Token, s.session, nil)
		s.planted = strings.TrimSuffix(e.Stdout, "\n")
		s.instance = e.InstanceID
		check(t, first, e)
		s.controls(t, hostile.InSession)
		s.others(t)
	} else {
		s.whileHeld(t)
	}
	s.controls(t, hostile.Together) // last: it plants files, too
	s.servesOn(t)
}

func themeOf(p hostile.Program) hostile.Theme {
	for _, theme := range hostile.Themes {
		if theme.Name == p.Theme {
			return theme
		}
	}
	return hostile.Theme{Name: p.Theme, Fresh: true}
}
