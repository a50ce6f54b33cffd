package chaos_test

// door is a front door that clients speak to. Another one takes a line in doors, and a
// client with act: what its answers mean is put into events, which the checks take as
// those of the broker's own API.
type door struct {
	// name, as in the configuration and in the audit log.
	name string
	// settings of its block, which is otherwise as usual.
	settings string
	// clients of each tenant.
	clients int
	// client makes one of a client of the broker's own API.
	client func(c *client) actor
}

var doors = []door{
	{"ragflow", " timeout = \"5s\"\n", 1, func(c *client) actor { return &ragflowClient{c} }},
	{"opensandbox", " images = { \"" + image + "\" = \"\" }\n", 1, func(c *client) actor { return newOpenSandboxClient(c) }},
	{"e2b", " templates = { \"" + image + "\" = \"\" }\n", 1, func(c *client) actor { return newE2BClient(c) }},
	{"deerflow", " lease = \"6h\"\n", 1, func(c *client) actor { return newDeerFlowClient(c) }},
	{"mcp", "", 1, func(c *client) actor { return newMCPClient(c) }},
}

// path is what the paths of a door begin with.
func (c *client) path(rest string) string { return "/" + c.door + rest }
