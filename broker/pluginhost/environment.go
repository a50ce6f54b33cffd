package pluginhost

import (
	"os"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// passedOn lists what every plugin gets of the broker's environment. All else
// stays here: the broker's environment holds secrets of other providers.
var passedOn = []string{
	"PATH", "HOME", "USER", "TMPDIR", "LANG", "LC_ALL", "TZ", "XDG_RUNTIME_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
	// Where the API server is, for a broker in a pod.
	"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT",
}

// listedValues are the values of variables that the operator gives to a plugin by
// name: most often they are keys. What is no secret by its name and its look, such as a
// region, is not among them.
func listedValues(names []string) []string {
	var values []string
	for _, name := range names {
		if !slices.Contains(passedOn, name) {
			if value := os.Getenv(name); !redact.Ordinary(name, value) {
				values = append(values, value)
			}
		}
	}
	return values
}

// environment is what a plugin starts with: the names passed on to everybody,
// those the operator listed, and the log level.
func environment(listed []string, logLevel string) []string {
	names := slices.Concat(passedOn, listed)
	slices.Sort(names)
	var env []string
	for _, name := range slices.Compact(names) {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return append(env, wire.EnvLogLevel+"="+logLevel)
}
