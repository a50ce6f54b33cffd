package main

// pluginCommand has the commands for authors of plugins.
type pluginCommand struct {
	Verify pluginVerifyCommand `cmd:"" help:"Check a plugin against the contract for providers."`
}
