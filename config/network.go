package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/networkpolicy"
)

// Network is what instances may reach, as a block of that name says it: for a tenant the most
// that any of its instances may.
type Network = sdk.NetworkPolicy

// The blocks within one.
const (
	blockNetwork = "network"
	blockAllow   = "allow"
	blockSecret  = "secret"
)

var (
	allowLabel  = regexp.MustCompile(`^(\*|(\*\.)?[a-z0-9_.:-]{1,253})$`)
	secretLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?$`)
)

func networkSchema() sdk.Schema {
	count := func(name string, most float64, description string) sdk.Field {
		return sdk.Field{Name: name, Type: sdk.TypeInteger, Min: sdk.Bound(1), Max: sdk.Bound(most), Description: description}
	}
	return sdk.Schema{
		count("max_connections", 100_000, "Connections of one instance at once; 64 unless given."),
		count("max_bytes", 1<<50, "Bytes that one instance may send, and as many that it may receive, in its life; 10 GiB unless given."),
		count("tenant_connections", 1_000_000, "Connections of all instances of the tenant at once, with each provider."),
		count("tenant_bytes", 1<<50, "Bytes that all instances of the tenant may send, and as many that they may receive, in a day of UTC, with each provider."),
	}
}

func allowSchema() sdk.Schema {
	list := func(name, description string, items *sdk.Field) sdk.Field {
		return sdk.Field{Name: name, Type: sdk.TypeList, Max: sdk.Bound(sdk.MaxNetworkWords), Items: items, Description: description}
	}
	flag := func(name, description string) sdk.Field {
		return sdk.Field{Name: name, Type: sdk.TypeBoolean, Default: false, Description: description}
	}
	return sdk.Schema{
		list("ports", "Ports of TCP; 80 and 443 unless given.", &sdk.Field{Type: sdk.TypeInteger, Min: sdk.Bound(1), Max: sdk.Bound(65535)}),
		list("methods", `Methods of HTTP in capitals, such as "GET"; all unless given. With them the provider reads into TLS.`, nil),
		list("paths", `Paths, such as "/simple/", or "/simple/*" for all below it; all unless given. With them the provider reads into TLS.`, nil),
		flag("websocket", "Whether a request that is read may ask for a WebSocket."),
		flag("tcp", "Whether any protocol may be spoken there, which nobody looks into."),
		flag("private", "Whether the host may be on a private network, or on the machine of the provider. Addresses of one link, where clouds keep their metadata, never are."),
	}
}

func secretSchema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "value", Type: sdk.TypeString, Required: true, Secret: true, Min: sdk.Bound(sdk.MinNetworkSecret), Max: sdk.Bound(sdk.MaxNetworkSecret),
			Description: "What takes the place of sandbox-secret- and the name. No instance ever holds it.",
		},
		{
			Name: "header", Type: sdk.TypeString, Default: "Authorization", Min: sdk.Bound(1), Max: sdk.Bound(63),
			Description: "The header in which it does.",
		},
		{
			Name: "hosts", Type: sdk.TypeList, Required: true, Min: sdk.Bound(1), Max: sdk.Bound(sdk.MaxNetworkWords),
			Description: "The hosts that get it, over TLS alone: names, or *. before one.",
		},
	}
}

// networkBlock describes the block.
func networkBlock() BlockSchema {
	return BlockSchema{
		Type: blockNetwork, Settings: networkSchema(),
		Description: "What instances may reach, where their provider has the capability `network`; see [network.md](network.md). Without this block that is nothing. Each block `allow` within it names a host by its label: a name, `*.` before one, `*` for every name, or an address. Each block `secret` is a value that requests get on the way out.",
		Blocks: []BlockSchema{
			{
				Type: blockAllow, Label: allowLabel.String(), Settings: allowSchema(),
				Description: "A host that may be reached. It may stand several times for one host: what one block allows is allowed.",
			},
			{
				Type: blockSecret, Label: secretLabel.String(), Settings: secretSchema(),
				Description: "A value that no instance ever holds.",
			},
		},
	}
}

// buildNetworkBlock describes the block of a template.
func buildNetworkBlock() BlockSchema {
	block := networkBlock()
	block.Description = "What the RUNs of the template's Dockerfile may reach, with the settings and the blocks of a tenant's [network](#tenant-network); nothing without it. Instances of the template have nothing of it."
	return block
}

// readNetwork reads the block.
func (p *parser) readNetwork(block *hclsyntax.Block) Network {
	var bounds struct {
		MaxConnections    int64 `config:"max_connections"`
		MaxBytes          int64 `config:"max_bytes"`
		TenantConnections int64 `config:"tenant_connections"`
		TenantBytes       int64 `config:"tenant_bytes"`
	}
	p.decode(p.readSection(block.Body, networkSchema(), block.DefRange()), &bounds, block.DefRange())
	network := Network{
		MaxConnections: int(bounds.MaxConnections), MaxBytes: bounds.MaxBytes,
		TenantConnections: int(bounds.TenantConnections), TenantBytes: bounds.TenantBytes,
	}
	before := p.failures
	for _, inner := range block.Body.Blocks {
		switch {
		case inner.Type == blockAllow && p.checkLabels(inner, blockKind{label: allowLabel}):
			network.Rules = append(network.Rules, p.readAllow(inner))
		case inner.Type == blockSecret && p.checkLabels(inner, blockKind{label: secretLabel}):
			network.Secrets = append(network.Secrets, p.readSecret(inner))
		case inner.Type != blockAllow && inner.Type != blockSecret:
			p.fail(inner.TypeRange, "Unknown block", unknownName("block", inner.Type, []string{blockAllow, blockSecret}))
			continue
		default:
			continue
		}
		if err := networkpolicy.Validate(network); err != nil && p.failures == before {
			message := err.Error()
			if coded, ok := errors.AsType[*sdk.Error](err); ok {
				message = coded.Message
			}
			p.fail(inner.DefRange(), "Invalid value", fmt.Sprintf("The network %s.", strings.TrimPrefix(message, "network ")))
		}
	}
	return network
}

func (p *parser) readAllow(block *hclsyntax.Block) sdk.NetworkRule {
	var read struct {
		Ports     []int64  `config:"ports"`
		Methods   []string `config:"methods"`
		Paths     []string `config:"paths"`
		WebSocket bool     `config:"websocket"`
		TCP       bool     `config:"tcp"`
		Private   bool     `config:"private"`
	}
	p.decode(p.readLeaf(block, allowSchema()), &read, block.DefRange())
	rule := sdk.NetworkRule{Host: block.Labels[0], Methods: read.Methods, Paths: read.Paths, WebSocket: read.WebSocket, TCP: read.TCP, Private: read.Private}
	for _, port := range read.Ports {
		rule.Ports = append(rule.Ports, int(port))
	}
	return rule
}

func (p *parser) readSecret(block *hclsyntax.Block) sdk.NetworkSecret {
	var read struct {
		Value  string   `config:"value"`
		Header string   `config:"header"`
		Hosts  []string `config:"hosts"`
	}
	p.decode(p.readLeaf(block, secretSchema()), &read, block.DefRange())
	return sdk.NetworkSecret{Name: block.Labels[0], Value: read.Value, Header: read.Header, Hosts: read.Hosts}
}
