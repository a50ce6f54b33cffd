package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"golang.org/x/net/http/httpguts"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Tracing says where traces of requests are sent, and which.
type Tracing struct {
	// Endpoint is the URL of the receiver, with a path; "" for no tracing.
	Endpoint string `config:"endpoint"`
	// Headers go with each request to it.
	Headers map[string]string `config:"headers"`
	// SampleRatio is the share of requests whose traces are sent, from 0 to 1.
	SampleRatio float64 `config:"sample_ratio"`
	// FollowCallers has the traces sent, too, that callers want to have.
	FollowCallers bool `config:"follow_callers"`
	// NameTenants puts the names of tenants into the spans.
	NameTenants bool `config:"name_tenants"`
}

const (
	// tracesPath is that of OTLP over HTTP, where the address has none.
	tracesPath = "/v1/traces"
	// maxTracingHeaders bounds the headers of a request with traces.
	maxTracingHeaders = 20
)

func tracingSchema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "endpoint", Type: sdk.TypeString, Required: true, Min: sdk.Bound(1), Placeholder: "http://127.0.0.1:4318",
			Description: "The receiver, by OTLP over HTTP: an address that begins with https:// or http://. `" + tracesPath + "` is its path unless it has one.",
		},
		{
			Name: "headers", Type: sdk.TypeMap, Secret: true, Max: sdk.Bound(maxTracingHeaders), Placeholder: `{ Authorization = sealed("...") }`,
			Description: "Headers that go with each request to the receiver, such as its key.",
		},
		{
			Name: "sample_ratio", Type: sdk.TypeNumber, Default: 1.0, Min: sdk.Bound(0), Max: sdk.Bound(1),
			Description: "The share of requests whose traces are sent. The broker rolls its own dice, whatever a caller sends.",
		},
		{
			Name: "follow_callers", Type: sdk.TypeBoolean, Default: false,
			Description: "Send the trace of a request, too, whose header traceparent says that it is sampled. Every tenant can have all of its requests sent then.",
		},
		{
			Name: "name_tenants", Type: sdk.TypeBoolean, Default: false,
			Description: "Name the tenant in the span of its request.",
		},
	}
}

func (p *parser) readTracing(block *hclsyntax.Block) Tracing {
	var tracing Tracing
	s := p.readLeaf(block, tracingSchema())
	p.decode(s, &tracing, block.DefRange())
	if a, given := s.setting("endpoint"); given {
		if u, ok := receiver(tracing.Endpoint); ok {
			tracing.Endpoint = u
		} else {
			p.fail(a.expr.Range(), "Invalid value", "endpoint is not an address that begins with https:// or http:// and has a host. Credentials belong into headers.")
		}
	}
	if a, given := s.setting("headers"); given {
		for _, name := range slices.Sorted(maps.Keys(tracing.Headers)) {
			if !httpguts.ValidHeaderFieldName(name) {
				p.fail(a.expr.Range(), "Invalid value", fmt.Sprintf("%q is no name of a header.", name))
			} else if !httpguts.ValidHeaderFieldValue(tracing.Headers[name]) {
				p.fail(a.expr.Range(), "Invalid value", fmt.Sprintf("The header %s has a character that none can have, such as the end of a line.", name))
			}
		}
	}
	return tracing
}

// receiver is an address with the path where traces are taken.
func receiver(address string) (string, bool) {
	u, err := url.Parse(address)
	if err != nil || !isWebhook(address) || u.RawQuery != "" || u.Fragment != "" {
		return "", false
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = tracesPath
	}
	return u.String(), true
}
