package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/config"
)

// aroundFrontDoors has two providers, and tenants that may use both and one of them.
const aroundFrontDoors = `
providers { active = "full" }
provider "full" {}
provider "other" {}
tenant "all" { token_sha256 = ["1111111111111111111111111111111111111111111111111111111111111111"] }
tenant "one" {
  token_sha256 = ["2222222222222222222222222222222222222222222222222222222222222222"]
  providers    = ["full"]
}
`

func parseFrontDoors(t *testing.T, text string) ([]config.FrontDoor, config.Diagnostics) {
	t.Helper()
	cfg, diags := config.Parse("x.hcl", []byte(text+aroundFrontDoors), config.WithEnv(testEnv))
	return cfg.FrontDoors, diags
}

func TestThereIsNoFrontDoorUnlessItsBlockIsThere(t *testing.T) {
	doors, diags := parseFrontDoors(t, "")
	assert.Assert(t, is.Len(diags, 0))
	assert.Assert(t, is.Len(doors, 0))
}

func TestFrontDoors(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []config.FrontDoor
	}{
		"with their defaults, in the order of the file": {
			`front_door "opensandbox" {}
			front_door "ragflow" {}`,
			[]config.FrontDoor{
				{Kind: config.FrontDoorOpenSandbox, Path: "/opensandbox", Wait: 10 * time.Second},
				{Kind: config.FrontDoorRAGFlow, Path: "/ragflow", Wait: 10 * time.Second, Timeout: 10 * time.Second},
			},
		},
		"with everything": {
			`front_door "ragflow" {
			  path     = "/x/y"
			  provider = "full"
			  wait     = "1s"
			  timeout  = 2.5
			  tenant   = "one"
			}
			front_door "opensandbox" {
			  path     = "/x/a.b_c~d-E0/1/2"
			  provider = "other"
			  wait     = 0
			  address  = "sandboxes.example.com:8443/os"
			  images   = { "opensandbox/code-interpreter:v1.0.1" = "", "python:3.12" = "python" }
			  network  = "allow"
			}`,
			[]config.FrontDoor{
				{Kind: config.FrontDoorRAGFlow, Path: "/x/y", Provider: "full", Wait: time.Second, Timeout: 2500 * time.Millisecond, Tenant: "one"},
				{
					Kind: config.FrontDoorOpenSandbox, Path: "/x/a.b_c~d-E0/1/2", Provider: "other", Address: "sandboxes.example.com:8443/os", Network: config.NetworkAllow,
					Images: map[string]string{"opensandbox/code-interpreter:v1.0.1": "", "python:3.12": "python"},
				},
			},
		},
		"within limits that are below their defaults": {
			`front_door "ragflow" {}
			limits {
			  max_wait    = "2s"
			  max_timeout = "3s"
			}`,
			[]config.FrontDoor{{Kind: config.FrontDoorRAGFlow, Path: "/ragflow", Wait: 2 * time.Second, Timeout: 3 * time.Second}},
		},
		"with settings that are null, and no images": {
			`front_door "opensandbox" {
			  path   = null
			  images = {}
			}`,
			[]config.FrontDoor{{Kind: config.FrontDoorOpenSandbox, Path: "/opensandbox", Wait: 10 * time.Second}},
		},
		"deerflow, with a lease that the limits cut": {
			`limits { max_lifetime = "30m" }
			front_door "deerflow" {}`,
			[]config.FrontDoor{{Kind: config.FrontDoorDeerFlow, Path: "/deerflow", Wait: 10 * time.Second, Lease: 30 * time.Minute}},
		},
		"deerflow, behind a proxy": {
			`front_door "deerflow" {
			  address  = "https://sandboxes.example.com:8443/df"
			  lease    = "2h"
			  template = "python"
			}`,
			[]config.FrontDoor{{
				Kind: config.FrontDoorDeerFlow, Path: "/deerflow", Wait: 10 * time.Second, Lease: 2 * time.Hour,
				Template: "python", Address: "https://sandboxes.example.com:8443/df",
			}},
		},
		"at addresses of their own": {
			`front_door "ragflow" { listen = "127.0.0.1:9000" }
			front_door "opensandbox" {
			  listen = ":0"
			  path   = "/opensandbox"
			}
			metrics { listen = "127.0.0.1:0" }`,
			[]config.FrontDoor{
				{Kind: config.FrontDoorRAGFlow, Listen: "127.0.0.1:9000", Wait: 10 * time.Second, Timeout: 10 * time.Second},
				{Kind: config.FrontDoorOpenSandbox, Listen: ":0", Path: "/opensandbox", Wait: 10 * time.Second},
			},
		},
		"at a path that one at an address of its own does not have": {
			`front_door "opensandbox" { listen = "127.0.0.1:9000" }
			front_door "ragflow" { path = "/opensandbox" }`,
			[]config.FrontDoor{
				{Kind: config.FrontDoorOpenSandbox, Listen: "127.0.0.1:9000", Wait: 10 * time.Second},
				{Kind: config.FrontDoorRAGFlow, Path: "/opensandbox", Wait: 10 * time.Second, Timeout: 10 * time.Second},
			},
		},
		"of E2B at its hosts": {
			`front_door "e2b" {
			  domain       = "Sandboxes.Example.com:8443"
			  public_ports = false
			  templates    = { base = "python" }
			}
			previews { address = "https://*.preview.example.com" }`,
			[]config.FrontDoor{{
				Kind: config.FrontDoorE2B, Path: "/e2b", Wait: 10 * time.Second, Domain: "sandboxes.example.com:8443",
				Templates: map[string]string{"base": "python", "code-interpreter-v1": ""},
			}},
		},
		"of MCP": {
			`front_door "mcp" {
			  wait    = "1s"
			  address = "sandboxes.example.com"
			}`,
			[]config.FrontDoor{{Kind: config.FrontDoorMCP, Path: "/mcp", Wait: time.Second, Address: "sandboxes.example.com"}},
		},
		"at each other's places": {
			`front_door "ragflow" { path = "/opensandbox" }
			front_door "opensandbox" { path = "/ragflow" }`,
			[]config.FrontDoor{
				{Kind: config.FrontDoorRAGFlow, Path: "/opensandbox", Wait: 10 * time.Second, Timeout: 10 * time.Second},
				{Kind: config.FrontDoorOpenSandbox, Path: "/ragflow", Wait: 10 * time.Second},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			doors, diags := parseFrontDoors(t, test.text)
			assert.Assert(t, is.Len(diags, 0))
			assert.DeepEqual(t, doors, test.want)
		})
	}
}

func TestMistakesInFrontDoors(t *testing.T) {
	images := func(n int) string {
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, "    \"i%d\" = \"\"\n", i)
		}
		return "images = {\n" + all.String() + "}"
	}
	for name, test := range map[string]struct {
		text, summary, says string
	}{
		"without a name":                         {`front_door {}`, "Label missing", "A front_door block has a name"},
		"of no kind that there is":               {`front_door "daytona" {}`, "Invalid name", `The name of a front_door block is one of "ragflow", "opensandbox", "e2b", "mcp", "deerflow".`},
		"of a kind in capitals":                  {`front_door "RAGFlow" {}`, "Invalid name", `"ragflow", "opensandbox"`},
		"twice":                                  {"front_door \"ragflow\" {}\nfront_door \"ragflow\" { path = \"/x\" }", "Block given twice", `front_door "ragflow" stands at line 1`},
		"written as a setting":                   {`front_door = "ragflow"`, "Block expected", `front_door is a block with a name`},
		"with a block in it":                     {"front_door \"opensandbox\" {\n  images {\n    a = \"\"\n  }\n}", "Block not expected", "images is a setting"},
		"ragflow with images":                    {`front_door "ragflow" { images = {} }`, "Unknown setting", `There is no setting "images" here. Known: path, listen, provider, wait, timeout, tenant.`},
		"ragflow with an address":                {`front_door "ragflow" { address = "x" }`, "Unknown setting", `There is no setting "address" here.`},
		"ragflow with a network":                 {`front_door "ragflow" { network = "deny" }`, "Unknown setting", `There is no setting "network" here.`},
		"opensandbox with a tenant":              {`front_door "opensandbox" { tenant = "all" }`, "Unknown setting", `There is no setting "tenant" here. Known: path, listen, provider, wait, address, images, network.`},
		"opensandbox with a timeout":             {`front_door "opensandbox" { timeout = 5 }`, "Unknown setting", `There is no setting "timeout" here.`},
		"mcp with images":                        {`front_door "mcp" { images = {} }`, "Unknown setting", `There is no setting "images" here. Known: path, listen, provider, wait, address.`},
		"a domain that is a number":              {`front_door "e2b" { domain = 5 }`, "Invalid value", "domain must be a string"},
		"a domain with a scheme":                 {`front_door "e2b" { domain = "https://example.com" }`, "Invalid value", "domain is a domain of at most 180 characters"},
		"opensandbox with a domain":              {`front_door "opensandbox" { domain = "example.com" }`, "Unknown setting", `There is no setting "domain" here.`},
		"public ports of no kind":                {`front_door "e2b" { public_ports = "some" }`, "Invalid value", "public_ports must be true or false"},
		"a provider that is not there":           {`front_door "ragflow" { provider = "ful" }`, "Unknown provider", `Did you mean "full"?`},
		"a provider of no name":                  {`front_door "ragflow" { provider = "" }`, "Invalid value", "at least 1 character"},
		"a tenant that is not there":             {`front_door "ragflow" { tenant = "nobody" }`, "Unknown tenant", "tenant is not the label of a tenant block. Known: all, one."},
		"a provider that the tenant has not":     {"front_door \"ragflow\" {\n  tenant = \"one\"\n  provider = \"other\"\n}", "Provider not allowed", "not among the providers of the tenant"},
		"deerflow with images":                   {`front_door "deerflow" { images = { a = "" } }`, "Unknown setting", `There is no setting "images" here. Known: path, listen, provider, wait, address, lease, template.`},
		"deerflow with a short lease":            {`front_door "deerflow" { lease = 59 }`, "Invalid value", "lease"},
		"a lease beyond every life":              {"limits { max_lifetime = \"2h\" }\nfront_door \"deerflow\" { lease = \"3h\" }", "Invalid value", "limits.max_lifetime"},
		"deerflow's template with a space":       {`front_door "deerflow" { template = "a b" }`, "Invalid value", "template is the name of a template"},
		"deerflow at an address with a slash":    {`front_door "deerflow" { address = "https://example.com/" }`, "Invalid value", "perhaps a scheme"},
		"deerflow by another scheme":             {`front_door "deerflow" { address = "ftp://example.com" }`, "Invalid value", "perhaps a scheme"},
		"deerflow with a scheme alone":           {`front_door "deerflow" { address = "https://" }`, "Invalid value", "perhaps a scheme"},
		"deerflow with two schemes":              {`front_door "deerflow" { address = "https://http://x" }`, "Invalid value", "perhaps a scheme"},
		"opensandbox with a scheme":              {`front_door "opensandbox" { address = "https://x" }`, "Invalid value", "It has no https:// before it"},
		"an address without a port":              {`front_door "ragflow" { listen = "127.0.0.1" }`, "Invalid value", "listen is not an address with a port"},
		"an address that is a number":            {`front_door "ragflow" { listen = 9000 }`, "Invalid value", "listen must be a string"},
		"where the REST API listens":             {`front_door "ragflow" { listen = "127.0.0.1:9385" }`, "Invalid value", "The REST API listens there. Choose another port."},
		"where the metrics are":                  {"front_door \"ragflow\" { listen = \":9400\" }\nmetrics { listen = \":9400\" }", "Invalid value", "The server of the metrics listens there."},
		"both at one address":                    {"front_door \"ragflow\" { listen = \":9000\" }\nfront_door \"opensandbox\" { listen = \":9000\" }", "Invalid value", `front_door "ragflow", at line 1, listens there.`},
		"a wait above the limit":                 {"front_door \"ragflow\" { wait = \"61s\" }", "Invalid value", "wait is above limits.max_wait, which is 1m0s."},
		"a wait where nobody may wait":           {"front_door \"ragflow\" { wait = \"1s\" }\nlimits { max_wait = 0 }", "Invalid value", "wait is above limits.max_wait, which is 0s."},
		"a wait that is no duration":             {`front_door "ragflow" { wait = "long" }`, "Invalid value", "wait must be a duration"},
		"a wait below zero":                      {`front_door "opensandbox" { wait = -1 }`, "Invalid value", "wait must be from 0 to 3600 seconds"},
		"a timeout above the limit":              {`front_door "ragflow" { timeout = "11m" }`, "Invalid value", "timeout is above limits.max_timeout, which is 10m0s."},
		"a timeout of nothing":                   {`front_door "ragflow" { timeout = 0 }`, "Invalid value", "timeout must be from 0.1 to 86400 seconds"},
		"another network":                        {`front_door "opensandbox" { network = "some" }`, "Invalid value", `network must be one of "deny", "allow"`},
		"images that are a list":                 {`front_door "opensandbox" { images = ["python"] }`, "Invalid value", "images must be a map of strings"},
		"an image of a number":                   {`front_door "opensandbox" { images = { a = 5 } }`, "Invalid value", "images must be a map of strings"},
		"an image without a name":                {`front_door "opensandbox" { images = { "" = "python" } }`, "Invalid value", "The name of an image has 1 to 255 characters"},
		"an image with a space":                  {`front_door "opensandbox" { images = { "a b" = "python" } }`, "Invalid value", "The name of an image"},
		"an image with a long name":              {`front_door "opensandbox" { images = { "` + strings.Repeat("a", 256) + `" = "" } }`, "Invalid value", "The name of an image"},
		"a template with a line's end":           {`front_door "opensandbox" { images = { a = "b\n" } }`, "Invalid value", "A template has at most 64 characters"},
		"a template with a long name":            {`front_door "opensandbox" { images = { a = "` + strings.Repeat("a", 65) + `" } }`, "Invalid value", "A template has"},
		"too many images":                        {"front_door \"opensandbox\" {\n" + images(201) + "\n}", "Invalid value", "images must have at most 200 keys"},
		"both at one path":                       {"front_door \"ragflow\" { path = \"/x\" }\nfront_door \"opensandbox\" { path = \"/x\" }", "Invalid value", `The path of front_door "ragflow", at line 1, is the same`},
		"one below the other":                    {"front_door \"ragflow\" { path = \"/x/y\" }\nfront_door \"opensandbox\" { path = \"/x\" }", "Invalid value", `The path of front_door "ragflow", at line 1`},
		"one above the other":                    {"front_door \"ragflow\" { path = \"/x\" }\nfront_door \"opensandbox\" { path = \"/x/y/z\" }", "Invalid value", `The path of front_door "ragflow", at line 1`},
		"below the default of one that is later": {"front_door \"ragflow\" { path = \"/opensandbox/r\" }\nfront_door \"opensandbox\" {}", "Invalid value", `The path of front_door "opensandbox", at line 2`},
	} {
		t.Run(name, func(t *testing.T) {
			_, diags := parseFrontDoors(t, test.text)
			assert.Assert(t, is.Len(diags, 1))
			assert.Equal(t, diags[0].Severity, config.SeverityError)
			assert.Equal(t, diags[0].Summary, test.summary)
			assert.Assert(t, is.Contains(diags[0].Detail, test.says))
		})
	}
	_, diags := parseFrontDoors(t, "front_door \"opensandbox\" {\n"+images(200)+"\n}")
	assert.Assert(t, is.Len(diags, 0))
}

func TestDomainsOfE2B(t *testing.T) {
	for domain, ok := range map[string]bool{
		"example.com": true, "e2b.localhost": true, "localhost": true, "a-b.1.example": true, "example.com:8443": true, "x1": true,
		strings.Repeat("a.", 88) + "abcd": true, strings.Repeat("a.", 88) + "abcde": false,
		"": false, "https://example.com": false, "*.example.com": false, "example.com/": false, "example.com:": false, "example.com:0": false,
		"example.com:65536": false, "example.com:080": false, ".example.com": false, "example.com.": false, "a..b": false, "-a.b": false,
		"10.1.2.3": false, "10.1.2.3:80": false, "[::1]": false, "::1": false, "a b": false, "a_b.c": false, "ä.example": false, "example.com\n": false, "u@example.com": false,
	} {
		t.Run(domain, func(t *testing.T) {
			doors, diags := parseFrontDoors(t, fmt.Sprintf("front_door \"e2b\" { domain = %q }\n", domain))
			if !ok {
				assert.Assert(t, is.Len(diags, 1))
				assert.Equal(t, diags[0].Summary, "Invalid value")
				return
			}
			assert.Assert(t, is.Len(diags, 0))
			assert.Equal(t, doors[0].Domain, domain)
			assert.Assert(t, doors[0].PublicPorts)
		})
	}
	for previews, ok := range map[string]bool{
		"http://*.sandboxes.example.com": false, "https://*.p.sandboxes.example.com": false, "https://*.example.com": false,
		"https://*.previews.example.com": true, "https://*.moresandboxes.example.com": true,
	} {
		_, diags := parseFrontDoors(t, fmt.Sprintf("front_door \"e2b\" { domain = \"sandboxes.example.com:8443\" }\npreviews { address = %q }\n", previews))
		assert.Check(t, is.Equal(len(diags) == 0, ok), previews)
		if len(diags) > 0 {
			assert.Check(t, is.Contains(diags[0].Detail, "The hosts of previews, below"))
		}
	}
}

// Of two paths that meet, the one is wrong that somebody has chosen.
func TestPathsOfFrontDoorsThatMeetAreShownWhereOneWasChosen(t *testing.T) {
	for text, line := range map[string]int{
		"front_door \"ragflow\" {\n  path = \"/opensandbox\"\n}\nfront_door \"opensandbox\" {\n}\n":      2,
		"front_door \"opensandbox\" {\n}\nfront_door \"ragflow\" {\n  path = \"/opensandbox/a\"\n}\n":    4,
		"front_door \"opensandbox\" {\n  path = \"/a\"\n}\nfront_door \"ragflow\" {\n  path = \"/a\"\n}": 5,
	} {
		_, diags := parseFrontDoors(t, text)
		assert.Assert(t, is.Len(diags, 1), text)
		assert.Equal(t, diags[0].Start.Line, line, text)
	}
}

func TestPathsOfFrontDoors(t *testing.T) {
	for path, ok := range map[string]bool{
		"/a": true, "/a/b/c/d": true, "/~": true, "/...": true, "/.well-known/x": true, "/apis": true, "/preview2": true,
		"/v1/api": true, "/healthz.txt": true, "/API": true, "/" + strings.Repeat("a", 127): true,
		"": false, "/": false, "a": false, "a/b": false, "/a/": false, "//a": false, "/a//b": false, "/a/b/c/d/e": false,
		"/.": false, "/..": false, "/a/../b": false, "/a/.": false, "/a b": false, "/a%2f": false, "/a?x": false, "/a#x": false,
		"/ä": false, "/{a}": false, "/*": false, "/:a": false, "/a\n": false, "/" + strings.Repeat("a", 128): false,
		"/api": false, "/api/v1": false, "/api/v2/x": false, "/healthz": false, "/readyz": false, "/openapi.json": false,
		"/preview": false, "/preview/x": false, "/admin": false, "/admin/x": false, "/docs": false, "/metrics": false, "/files": false, "/files/x": false,
	} {
		t.Run(path, func(t *testing.T) {
			doors, diags := parseFrontDoors(t, fmt.Sprintf("front_door \"ragflow\" { path = %q }\n", path))
			assert.Equal(t, len(diags) == 0, ok, "%v", diags)
			if ok {
				assert.Equal(t, doors[0].Path, path)
			} else {
				assert.Assert(t, is.Len(diags, 1))
				assert.Equal(t, diags[0].Summary, "Invalid value")
			}
		})
	}
}

func TestAddressesOfFrontDoors(t *testing.T) {
	for address, ok := range map[string]bool{
		"example.com": true, "localhost:9385": true, "10.1.2.3": true, "[::1]:80": true, "[::1]": true, "Example.com:65535": true, "example.com/a/b": true, "example.com:1/a": true,
		"": false, "https://example.com": false, "//example.com": false, "/a": false, ":80": false, "example.com:": false, "example.com:0": false,
		"example.com:65536": false, "example.com:080": false, "example.com:http": false, "example.com/": false, "example.com/a/": false, "example.com/../a": false,
		"example.com?x": false, "example.com#": false, "example.com?": false, "user@example.com": false, "a b": false, "-x": false, "::1": false, "[::1": false,
		"[fe80::1%25eth0]": false, "example.com/%61": false, "*.example.com": false, strings.Repeat("a.", 127) + "aa": false,
	} {
		t.Run(address, func(t *testing.T) {
			doors, diags := parseFrontDoors(t, fmt.Sprintf("front_door \"opensandbox\" { address = %q }\n", address))
			assert.Equal(t, len(diags) == 0, ok, "%v", diags)
			if ok {
				assert.Equal(t, doors[0].Address, address)
			}
		})
	}
}

func TestAFrontDoorWithoutTokensToOtherMachinesIsWarnedOf(t *testing.T) {
	const open = "front_door \"ragflow\" {\n  tenant = \"all\"\n}\n"
	for text, warned := range map[string]bool{
		"listen = \"0.0.0.0:80\"\n" + open:                                                                                          true,
		open + "listen = \":80\"\n":                                                                                                 true,
		"listen = \"sandbox.example.com:80\"\n" + open:                                                                              true,
		"front_door \"ragflow\" {\n  tenant = \"all\"\n  listen = \":9000\"\n}\n":                                                   true,
		"listen = \":80\"\nfront_door \"ragflow\" {\n  tenant = \"all\"\n  listen = \"127.0.0.1:9000\"\n}\n":                        false,
		"listen = \":80\"\nfront_door \"ragflow\" {\n  tenant = \"all\"\n  listen = \"127.0.0.1:9000\"\n  path = \"/ragflow\"\n}\n": true,
		"listen = \"127.0.0.1:80\"\n" + open:                                                                                        false,
		"listen = \"localhost:80\"\n" + open:                                                                                        false,
		open:                                                                                                                        false,
		"listen = \"0.0.0.0:80\"\nfront_door \"ragflow\" {}\n":                                                                      false,
		"listen = \"0.0.0.0:80\"\nfront_door \"opensandbox\" {}":                                                                    false,
	} {
		_, diags := parseFrontDoors(t, text+"\n")
		assert.Assert(t, !diags.HasErrors(), "%s: %v", text, diags)
		if !warned {
			assert.Check(t, is.Len(diags, 0), text)
			continue
		}
		assert.Assert(t, is.Len(diags, 1), text)
		assert.Check(t, is.Equal(diags[0].Severity, config.SeverityWarning), text)
		assert.Check(t, is.Contains(diags[0].Detail, "Whoever reaches the port runs code as this tenant"), text)
		assert.Check(t, is.Equal(diags[0].Within, `front_door "ragflow"`), text)
	}
}

// What is wrong elsewhere is told there, and not once more of the front door.
func TestMistakesElsewhereAreNoneOfAFrontDoor(t *testing.T) {
	for name, text := range map[string]string{
		"limits":     "limits {\n  max_wait = \"x\"\n}\nfront_door \"ragflow\" {\n  wait = \"5s\"\n}\n",
		"a tenant":   "tenant \"wrong\" {}\nfront_door \"ragflow\" {\n  tenant = \"wrong\"\n}\n",
		"a provider": "provider \"wrong\" {\n  sha256 = \"x\"\n}\nfront_door \"ragflow\" {\n  provider = \"wrong\"\n}\n",
		"a path":     "front_door \"ragflow\" {\n  path = 5\n}\nfront_door \"opensandbox\" {}\n",
		"env":        "front_door \"ragflow\" {\n  path = env(\"UNSET\")\n}\nfront_door \"opensandbox\" {}\n",
	} {
		_, diags := parseFrontDoors(t, text)
		assert.Check(t, is.Len(diags, 1), name)
	}
}

// A value from the environment is in no message.
func TestNoMistakeInAFrontDoorShowsWhatEnvGives(t *testing.T) {
	for _, setting := range []string{"path", "provider", "tenant", "wait"} {
		_, diags := parseFrontDoors(t, "front_door \"ragflow\" { "+setting+" = env(\"API_KEY\") }\n")
		assert.Check(t, diags.HasErrors(), setting)
		assert.Check(t, !strings.Contains(diags.Error(), secret), "%v", diags)
	}
	for _, text := range []string{`address = env("API_KEY")`, `network = env("API_KEY")`, `images = { (env("API_KEY")) = "x" }`, `images = { x = env("API_KEY") }`} {
		_, diags := parseFrontDoors(t, "front_door \"opensandbox\" { "+text+" }\n")
		assert.Check(t, diags.HasErrors(), text)
		assert.Check(t, !strings.Contains(diags.Error(), secret), "%v", diags)
	}
}
