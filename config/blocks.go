package config

import "github.com/sandbox-broker/sandbox-broker/sdk"

// BlockSchema says what one kind of block may hold.
type BlockSchema struct {
	// Type of the block; "" stands for the settings outside of all blocks.
	Type string
	// Label is the pattern of the block's name, "" if it has none. A block with a
	// name may stand several times.
	Label string
	// Reserved are names that match it and are refused all the same.
	Reserved []string
	// Description in sentences, as Markdown.
	Description string
	// Settings of the broker. A provider block holds those of its plugin too.
	Settings sdk.Schema
	// Kinds are all the names that it may have, where what it may hold depends on that:
	// it has no Settings then.
	Kinds []KindSchema
	// Blocks that it may hold: each once, or where it has a Label several times.
	Blocks []BlockSchema
}

// KindSchema says what a block of one name may hold.
type KindSchema struct {
	// Name is the block's label.
	Name string
	// Description in sentences, as Markdown.
	Description string
	Settings    sdk.Schema
}

// Blocks describes all that a configuration may hold, in the order in which it is
// best explained. It is the source of the reference and of the JSON Schema.
func Blocks() []BlockSchema {
	quota := BlockSchema{
		Type: "quota", Settings: quotaSchema(),
		Description: "How much each tenant may use. A quota that is not set has no limit, but for max_concurrent. What the block `quota` within a `tenant` block sets holds for that tenant in place of the same setting here.",
	}
	webhooks := BlockSchema{
		Type: "webhooks", Settings: webhooksSchema(),
		Description: "Where this tenant may have the results of detached executions posted to.",
	}
	return []BlockSchema{
		{
			Settings:    rootSchema(),
			Description: "Settings outside of all blocks. Each stands once, in whichever file; `include` in the main one. `plugin_dir` is the directory `plugins` beside the executable unless it is given.",
		},
		{
			Type: "log", Settings: logSchema(),
			Description: "The log goes to standard error.",
		},
		{
			Type: "metrics", Settings: metricsSchema(),
			Description: "Without this block there are no metrics to be read.",
		},
		{
			Type: "tracing", Settings: tracingSchema(),
			Description: "Without this block no trace is sent anywhere, and nothing of a caller's trace is looked at.",
		},
		{
			Type: "tls", Settings: tlsSchema(),
			Description: "With this block the REST API speaks HTTPS, TLS 1.2 at least. The files are read again whenever they change.",
		},
		{
			Type: "peers", Settings: peersSchema(),
			Description: "Where other brokers on the same database pass calls on to this one, over TLS 1.3 with certificates on both sides. The files are read again whenever they change.",
		},
		{
			Type: "limits", Settings: limitsSchema(),
			Description: "These hold for every tenant.",
		},
		{
			Type: "connections", Settings: connectionsSchema(),
			Description: "How many connections the REST API keeps open. What the process has too few file descriptors for is lowered at the start.",
		},
		{
			Type: "previews", Settings: previewsSchema(),
			Description: "Previews with hosts of their own. Without this block there are those by path alone.",
		},
		{
			Type: "front_door", Label: frontDoorLabel.String(), Kinds: []KindSchema{
				{
					Name: FrontDoorRAGFlow, Settings: frontDoorSchema(FrontDoorRAGFlow),
					Description: "The API of RAGFlow's executor manager, for RAGFlow's agents.",
				},
				{
					Name: FrontDoorOpenSandbox, Settings: frontDoorSchema(FrontDoorOpenSandbox),
					Description: "The API of OpenSandbox, for its SDKs. Its clients send a tenant's token as their key.",
				},
				{
					Name: FrontDoorE2B, Settings: frontDoorSchema(FrontDoorE2B),
					Description: "The API of E2B, for its SDKs. Its clients send a tenant's token as their key.",
				},
				{
					Name: FrontDoorMCP, Settings: frontDoorSchema(FrontDoorMCP),
					Description: "Tools over the Model Context Protocol, for assistants. Their hosts send a tenant's token.",
				},
				{
					Name: FrontDoorDeerFlow, Settings: frontDoorSchema(FrontDoorDeerFlow),
					Description: "The API of DeerFlow's provisioner and of the sandboxes that it makes. DeerFlow sends a tenant's token as its key.",
				},
			},
			Description: "An API of another system, so that its clients work with the broker as they are. There is none without such a block.",
		},
		{
			Type: "provider", Label: providerLabel.String(), Reserved: reservedProviders(), Settings: pluginSchema(),
			Description: "One configured plugin. The other settings of the block are the plugin's own: see its page, or ask it with `sandbox-broker config schema FILE --markdown`.",
		},
		{
			Type: "providers", Settings: activeSchema(),
			Description: "Which provider serves a request that names none. It can be left out where there is one provider.",
		},
		{
			Type: "template", Label: templateName.String(), Settings: templateSchema(), Blocks: []BlockSchema{buildNetworkBlock()},
			Description: "What instances can be made of beside what the providers have themselves: the root file system of an image or of a Dockerfile, with packages. A block `network` within it says what the RUNs of its Dockerfile may reach. [Templates](templates.md) says more. A template whose name a provider has for its own takes its place.",
		},
		{
			Type: "tenant", Label: tenantLabel.String(), Settings: tenantSchema(), Blocks: []BlockSchema{quota, webhooks, networkBlock()},
			Description: "Who may ask. A block `quota` within it holds the settings of the block of that name at the top, for this tenant alone, and a block `network` says what its instances may reach; without a block `webhooks` it may have nothing posted anywhere.",
		},
		quota,
		{
			Type: "audit", Settings: auditSchema(),
			Description: "The log of everything that is done to instances and to the broker. It is written without this block too.",
		},
		{
			Type: "admin", Settings: adminSchema(),
			Description: "Who may look behind the scenes. Without this block there are no administrators.",
		},
	}
}
