package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/icmd"

	"github.com/sandbox-broker/sandbox-broker/docs/markdown"
	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/e2e/transcript"
)

// A page is one long shell session: commands in blocks marked sh, and behind some
// of them what they print, as json, events or text.
func TestTheCommandsInThePagesWorkWhenPasted(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	b := harness.Start(t, harness.Options{
		Config: fmt.Sprintf("provider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 4\n  volumes_mb = 512\n}\n", binaries.Runsc(t)) +
			"tenant \"demo\" { token_sha256 = [\"7c43ef5ae21d43ce2743f770c68e24def1a43ee2f416d2438410c8af7af2ff2c\"] }\n",
	})
	examples, err := filepath.Abs("../examples")
	assert.NilError(t, err)
	assert.NilError(t, os.Symlink(examples, filepath.Join(b.Dir, "examples")))
	pages, err := filepath.Glob("../docs/agents*.md")
	assert.NilError(t, err)
	for _, path := range append(pages, "../docs/command-line.md", "../README.md") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			page, err := markdown.Read(path)
			assert.NilError(t, err)
			paste(t, b, page)
		})
	}
}

func paste(t *testing.T, b *harness.Broker, page markdown.Page) {
	env := append(os.Environ(), "SANDBOX_BROKER_URL="+b.URL, "HOME="+t.TempDir(), "XDG_CONFIG_HOME=") // where contexts are kept
	variables := ""                                                                                   // that a command set for those after it
	for i, block := range page.Blocks {
		if block.Language != "sh" {
			continue
		}
		t.Run(fmt.Sprintf("line %d", block.Line), func(t *testing.T) {
			command := strings.ReplaceAll(block.Code, "http://127.0.0.1:9385", b.URL)
			if strings.HasPrefix(command, "id=") {
				command += "declare -p id\n"
			}
			result := icmd.RunCmd(icmd.Command("bash", "-c", "set -euo pipefail\n"+variables+command), icmd.WithEnv(env...), icmd.Dir(b.Dir))
			assert.NilError(t, result.Error, result.Combined())
			if strings.HasPrefix(command, "id=") {
				variables = result.Stdout()
			}
			if i+1 == len(page.Blocks) {
				return
			}
			transcript.Check(t, page.Blocks[i+1], result.Stdout())
		})
	}
}

// Whatever a page shows of a configuration is accepted, by the plugin too.
func TestTheConfigurationsInThePagesAreAccepted(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	pages, err := markdown.Pages("..")
	assert.NilError(t, err)
	count := 0
	for _, path := range pages {
		page, err := markdown.Read(path)
		assert.NilError(t, err)
		for _, block := range page.Blocks {
			if block.Language != "hcl" {
				continue
			}
			count++
			t.Run(fmt.Sprintf("%s line %d", filepath.Base(path), block.Line), func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "sandbox.hcl")
				text := block.Configuration(filepath.Join(binaries.Dir(t), "plugins"))
				assert.NilError(t, os.WriteFile(file, []byte(text), 0o600))
				result := icmd.RunCommand(filepath.Join(binaries.Dir(t), "sandbox-broker"), "check", file)
				assert.NilError(t, result.Error, result.Combined())
			})
		}
	}
	assert.Check(t, count > 0, "there is something to check")
}
