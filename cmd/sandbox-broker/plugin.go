package main

// pluginCommand has the commands for authors of plugins.
type pluginCommand struct {
	New      pluginNewCommand      `cmd:"" help:"Write the skeleton of a plugin in Go."`
	Verify   pluginVerifyCommand   `cmd:"" help:"Check a plugin against the contract for providers."`
	List     pluginListCommand     `cmd:"" help:"Show the plugins of a directory."`
	Describe pluginDescribeCommand `cmd:"" help:"Show what a plugin says of itself."`
	Docs     pluginDocsCommand     `cmd:"" help:"Make a Markdown page of what a plugin says of itself."`
}
