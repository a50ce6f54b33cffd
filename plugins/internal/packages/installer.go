package packages

import (
	"net/url"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Paths inside the sandbox where packages are installed. The runners of the guest
// look for modules there.
const (
	PythonDir = "/workspace/.packages/python"
	NodeDir   = "/workspace/node_modules"
)

// Failure is what stderr of an installation begins with that did not succeed.
const Failure = "Failed to install requirements: "

// Sources say where packages come from.
type Sources struct {
	// Index is a simple index of Python packages; nil for none.
	Index *url.URL
	// Wheels is the URL of a page with wheels; nil for none.
	Wheels *url.URL
	// Registry is a registry of npm; nil for none.
	Registry *url.URL
}

// Python is the program that installs Python packages. -I keeps what user code has
// left out of the installer, --isolated its settings.
func Python(interpreter string, from Sources, requirements []string) (argv []string, env map[string]string) {
	argv = []string{
		interpreter, "-I", "-m", "pip", "install", "--isolated", "--no-input", "--no-color", "--progress-bar=off",
		"--disable-pip-version-check", "--no-warn-script-location", "--no-cache-dir", "--prefer-binary",
		"--retries=1", "--timeout=15", "--upgrade", "--target=" + PythonDir,
	}
	if from.Index != nil {
		argv = append(argv, "--index-url="+from.Index.String())
	} else {
		argv = append(argv, "--no-index")
	}
	if from.Wheels != nil {
		argv = append(argv, "--find-links="+from.Wheels.String())
	}
	for _, source := range []*url.URL{from.Index, from.Wheels} {
		if source != nil && source.Scheme == "http" {
			argv = append(argv, "--trusted-host="+source.Host)
		}
	}
	// What builds a package from source is another process, which -I does not reach.
	env = map[string]string{"PYTHONNOUSERSITE": "1", "PIP_CONFIG_FILE": "/dev/null", "PYTHONDONTWRITEBYTECODE": "1"}
	return append(append(argv, "--"), requirements...), env
}

// installInTemporary runs npm where user code has left it neither settings nor a
// package.json, and then moves what it has installed.
const installInTemporary = `
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const [target, node, ...npm] = process.argv.slice(1);
const { status, signal, error } = spawnSync(node, npm, { cwd: '/tmp', stdio: ['ignore', 'inherit', 'inherit'] });
if (error) throw error;
if (signal) process.kill(process.pid, signal);
if (status === 0 && fs.existsSync('/tmp/install/node_modules')) {
  fs.cpSync('/tmp/install/node_modules', target, { recursive: true, force: true, verbatimSymlinks: true });
}
process.exitCode = status;
`

// Node is the program that installs npm packages.
func Node(interpreter, npm string, from Sources, requirements []string) (argv []string, env map[string]string) {
	argv = []string{
		interpreter, "-e", installInTemporary, "--", NodeDir,
		interpreter, npm, "install", "--prefix=/tmp/install", "--cache=/tmp/cache", "--registry=" + from.Registry.String(),
		"--userconfig=/dev/null", "--globalconfig=/tmp/none", "--no-audit", "--no-fund", "--no-update-notifier", "--no-progress",
		"--color=false", "--fetch-retries=1", "--fetch-timeout=15000", "--loglevel=error", "--logs-max=0",
	}
	return append(append(argv, "--"), requirements...), map[string]string{}
}

// Explain makes the one text of a failed installation of what the installer said.
func Explain(stdout, stderr string, result sdk.ExecuteResult) string {
	said := strings.TrimSpace(stderr)
	if said == "" {
		said = strings.TrimSpace(stdout)
	}
	if said == "" {
		said = result.Detail
	}
	if said == "" {
		said = "the installer said nothing"
	}
	return Failure + said + "\n"
}
