// Package daytona_test has Daytona's published SDK use the fake of it that the provider is
// tested on: what an independent client takes for the service is good enough.
package daytona_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/npm"
	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake"
)

func TestMain(m *testing.M) {
	daytonafake.Main()
	os.Exit(m.Run())
}

// client installs the SDK.
func client(t *testing.T) string {
	t.Helper()
	binaries.Needs(t, "bwrap", "bubblewrap")
	dir := t.TempDir()
	assert.NilError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "client"))))
	npm.Install(t, dir)
	return dir
}

// useTime is far more than a machine needs.
const useTime = 5 * time.Minute

func TestTheSDKTakesTheFakeForTheService(t *testing.T) {
	dir := client(t)
	var names []string
	outcomes := map[string]string{} // by the feature, of both daemons
	for _, daemon := range []struct {
		name    string
		options daytonafake.Options
	}{
		{"old", daytonafake.Options{}},
		{"new", daytonafake.Options{NewDaemon: true, Class: "linux-vm"}},
	} {
		t.Run(daemon.name, func(t *testing.T) {
			fake, err := daytonafake.Start(daemon.options)
			assert.NilError(t, err)
			defer func() { assert.Check(t, fake.Close()) }()
			ctx, cancel := context.WithTimeout(t.Context(), useTime)
			defer cancel()
			cmd := exec.CommandContext(ctx, "node", "client.mjs", fake.APIURL, daytonafake.DefaultAPIKey, daemon.name)
			cmd.Dir = dir
			if daemon.name == "new" { // the other waits for news over Socket.IO, which there is not
				cmd.Env = append(cmd.Environ(), "DAYTONA_USE_DEPRECATED_POLLING=true")
			}
			var said bytes.Buffer
			cmd.Stderr = &said
			out, err := cmd.Output()
			assert.NilError(t, err, "%s%s", out, &said)
			for line := range strings.Lines(string(out)) {
				outcome, name, _ := strings.Cut(strings.TrimSpace(line), " ")
				if name = strings.TrimSpace(name); outcomes[name] == "" {
					names = append(names, name)
				}
				outcomes[name] += fmt.Sprintf("%-9s", outcome)
			}
			assert.Equal(t, len(fake.Sandboxes()), 0, "the client has ended its sandboxes")
		})
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%-9s%-9s%s\n", "v0.190.0", "newer", "feature")
	for _, name := range names {
		fmt.Fprintf(&table, "%s%s\n", outcomes[name], name)
	}
	t.Log("\n" + table.String())
}
