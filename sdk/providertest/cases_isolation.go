package providertest

import (
	"os"
	"strings"
)

func isolationCases() []Case {
	const group = "isolation"
	return []Case{
		{Group: group, Name: "a file of one instance is not in another", run: filesAreIsolated},
		{Group: group, Name: "a temporary file of one instance is not in another", run: temporaryFilesAreIsolated},
		{Group: group, Name: "a new instance has nothing of one that was destroyed", run: nothingIsInherited},
		{Group: group, Name: "variables of one instance are not in another", run: environmentIsIsolated},
		{Group: group, Name: "code sees no variables of the plugin", run: pluginEnvironmentIsHidden},
		{Group: group, Name: "code sees no secrets of the settings", run: secretsAreHidden},
	}
}

// "one live sandbox; never shared between tenants or sessions"
func filesAreIsolated(c *scene) {
	one, other := c.instance(), c.instance()
	one.run(c.samples.Write).succeeded()
	other.prints(c.samples.Read, "absent")
	one.prints(c.samples.Read, "kept")
}

// The same.
func temporaryFilesAreIsolated(c *scene) {
	one, other := c.instance(), c.instance()
	one.run(c.samples.WriteTmp).succeeded()
	other.prints(c.samples.ReadTmp, "absent")
}

// "Destroy ends an instance and frees all it holds." (Provider.Destroy)
func nothingIsInherited(c *scene) {
	one := c.instance()
	one.run(c.samples.Write).succeeded()
	c.destroy(one.ID)
	c.instance().prints(c.samples.Read, "absent")
}

// "Env is added to the environment of every execution": of this instance.
// (CreateRequest)
func environmentIsIsolated(c *scene) {
	c.someLanguage()
	req := c.createRequest(c.language)
	req.Env = map[string]string{"PROVIDERTEST": "of one"}
	c.create(req)
	c.instance().prints(c.samples.Value, "absent")
}

// The plugin's environment is the plugin's: code that sees go-plugin's variables
// could pose as a plugin.
func pluginEnvironmentIsHidden(c *scene) {
	canary := "OF_THE_PLUGIN_" + randomWord()
	// In process the plugin's environment is ours.
	c.must(os.Setenv(canary, "seen"), "set a variable")
	c.later(func() { _ = os.Unsetenv(canary) })
	got := c.instance().run(c.samples.Environment)
	got.succeeded()
	for line := range strings.Lines(got.stdout) {
		name, _, _ := strings.Cut(line, "=")
		for _, prefix := range []string{"SANDBOX_BROKER_", "PLUGIN_", canary} {
			c.check(!strings.HasPrefix(name, prefix), "code sees the plugin's variable %s", name)
		}
	}
}

// "Secret settings are never shown, logged or echoed." (Field)
func secretsAreHidden(c *scene) {
	secrets := secretsOf(c.Describe().Schema, c.suite.given)
	if len(secrets) == 0 {
		c.skip("the settings of this run have no secret")
	}
	got := c.instance().run(c.samples.Environment)
	got.succeeded()
	for _, secret := range secrets {
		c.check(!strings.Contains(got.stdout, secret), "code sees a secret of the settings in its environment")
	}
}
