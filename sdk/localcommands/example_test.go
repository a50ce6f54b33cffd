package localcommands_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/localcommands"
	"github.com/sandbox-broker/sandbox-broker/sdk/processtree"
)

// tree is a processtree.Tree as a localcommands.Process.
type tree struct{ *processtree.Tree }

func (t tree) Wait() (localcommands.Exit, error) {
	exit, err := t.Tree.Wait()
	return localcommands.Exit{Code: exit.Code}, err
}

// startTree starts a program below the directory of this process.
func startTree(_ context.Context, _ string, program localcommands.Program) (localcommands.Process, error) {
	started, err := processtree.Start(processtree.Program{
		Argv: program.Argv, Env: environment(program.Env), Dir: os.TempDir(),
		Stdin: program.Stdin, Stdout: program.Stdout, Stderr: program.Stderr,
	})
	if err != nil {
		return nil, err
	}
	return tree{started}, nil
}

func environment(more map[string]string) []string {
	env := []string{"PATH=/usr/bin:/bin"}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		env = append(env, name+"="+more[name])
	}
	return env
}

// A provider embeds the commands of its instances, which run as process trees here.
func Example() {
	ctx := context.Background()
	commands := localcommands.New(localcommands.Options{
		Check: func(instanceID string) error {
			if instanceID != "i1" {
				return sdk.Errorf(sdk.CodeNotFound, "no such instance")
			}
			return nil
		},
		Start: startTree,
	})
	started, err := commands.StartCommand(ctx, sdk.CommandRequest{
		InstanceID: "i1", Argv: []string{"sh", "-c", "echo hello; exit 3"}, KeepOutput: 1 << 20,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended, err := commands.ReadCommand(ctx, sdk.ReadCommandRequest{InstanceID: "i1", CommandID: started.ID, Follow: true}, func(o sdk.CommandOutput) error {
		fmt.Printf("%s at %d: %s", o.Stream, o.Offset, o.Data)
		return nil
	})
	fmt.Println(ended.State, ended.ExitCode, err)
	fmt.Println(commands.EndCommands(ctx, "i1"))
	// Output:
	// stdout at 0: hello
	// failed 3 <nil>
	// <nil>
}
