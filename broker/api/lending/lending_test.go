package lending_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands"
	"github.com/sandbox-broker/sandbox-broker/sdk/localfiles"
	"github.com/sandbox-broker/sandbox-broker/sdk/processtree"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ lending.Instances = (*instance.Service)(nil)
	_ sdk.Commands      = served{}
	_ sdk.Files         = served{}
)

var acme = tenant.Tenant{Name: "acme"}

// fixture is an instance whose programs run on this machine as they are, and whose
// files are in a directory.
type fixture struct {
	*instance.Service
	id        string // of the instance
	workspace string // its directory on this machine
	// starting, if not nil, is called when a command is about to be started.
	starting func()
}

type fake = instancetest.Provider

// provider is an instance.Provider with the capabilities of the fixture.
type provider struct {
	*fake
	served served
}

// Provider implements instance.Provider.
func (p provider) Provider(ctx context.Context) (sdk.Provider, error) {
	all, err := p.fake.Provider(ctx)
	p.served.Provider = all
	return p.served, err
}

// served is what the calls of the service arrive at.
type served struct {
	sdk.Provider
	*localcommands.Commands
	*localfiles.Files
	fixture *fixture
}

// StartCommand implements sdk.Commands.
func (s served) StartCommand(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
	if s.fixture.starting != nil {
		s.fixture.starting()
	}
	return s.Commands.StartCommand(ctx, req)
}

// tree is a processtree.Tree as a localcommands.Process.
type tree struct{ *processtree.Tree }

func (t tree) Wait() (localcommands.Exit, error) {
	exit, err := t.Tree.Wait()
	return localcommands.Exit{Code: exit.Code}, err
}

func start(t *testing.T) *fixture {
	t.Helper()
	root := t.TempDir()
	f := &fixture{workspace: filepath.Join(root, "workspace")}
	assert.NilError(t, os.Mkdir(f.workspace, 0o755))
	commands := localcommands.New(localcommands.Options{
		Check: func(string) error { return nil },
		Start: func(_ context.Context, _ string, program localcommands.Program) (localcommands.Process, error) {
			started, err := processtree.Start(processtree.Program{
				Argv: program.Argv, Env: []string{"PATH=/usr/bin:/bin"}, Dir: f.workspace,
				Stdin: program.Stdin, Stdout: program.Stdout, Stderr: program.Stderr,
			})
			return tree{started}, err
		},
	})
	files := localfiles.New(localfiles.Options{Directory: func(string) (string, error) { return root, nil }})
	p := provider{
		fake:   &fake{Name: "first", SameID: "i1", Capabilities: []sdk.Capability{sdk.CapabilityCommands, sdk.CapabilityFiles}},
		served: served{Commands: commands, Files: files, fixture: f},
	}
	f.Service = instance.NewService(instance.Options{Catalog: instancetest.Catalog{p}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger()})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.Check(t, commands.EndCommands(ctx, "i1"))
		f.Shutdown(ctx)
	})
	info, _, err := f.Create(t.Context(), acme, instance.CreateRequest{Session: "s", Template: "python"})
	assert.NilError(t, err)
	f.id = info.ID.String()
	return f
}
