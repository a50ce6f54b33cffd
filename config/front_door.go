package config

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// FrontDoor is an API of another system that the broker serves, so that the unmodified
// clients of that system work with it.
type FrontDoor struct {
	// Kind is the block's label: FrontDoorRAGFlow, FrontDoorOpenSandbox, FrontDoorE2B,
	// FrontDoorMCP or FrontDoorDeerFlow.
	Kind string `config:"-"`
	// Path is what the paths of this API begin with, on the listener of the REST API.
	// None of the broker's own is above or below it, and no other front door's. "" where
	// the API is at Listen alone.
	Path string `config:"path"`
	// Listen is host:port of a listener where nothing but this API is, at the root; ""
	// for none.
	Listen string `config:"listen"`
	// Provider is the label of the one that its instances are made on; "" for the usual
	// one.
	Provider string `config:"provider"`
	// Wait is how long a request may wait for its turn; never above Limits.MaxWait.
	Wait time.Duration `config:"wait"`
	// Timeout of a run, of RAGFlow alone; never above Limits.MaxTimeout.
	Timeout time.Duration `config:"timeout"`
	// Lease is how long a sandbox of DeerFlow lives after each use; never above
	// Limits.MaxLifetime.
	Lease time.Duration `config:"lease"`
	// Template of the provider that sandboxes of DeerFlow are made of; "" for its usual one.
	Template string `config:"template"`
	// Tenant is who a caller without a token is, of RAGFlow alone; "" if he is refused.
	Tenant string `config:"tenant"`
	// Address is host, host:port or one of these with a path, by which clients reach the
	// broker: it begins the addresses that OpenSandbox, MCP and DeerFlow hand out. DeerFlow's
	// may have http:// or https:// before it. "" for the host that the request was sent to.
	Address string `config:"address"`
	// Images are the names of images that clients of OpenSandbox may ask for, with the
	// template of the provider that each stands for; "" for its usual one.
	Images map[string]string `config:"images"`
	// Templates are the names of templates that clients of E2B may ask for, with the
	// provider's template that each stands for; "" for its usual one.
	Templates map[string]string `config:"templates"`
	// Domain is a domain, perhaps with a port, at whose hosts E2B's API is and each port of
	// each sandbox has one of its own; in lower case, "" for none.
	Domain string `config:"domain"`
	// PublicPorts has ports of E2B's sandboxes answer whoever knows the ID of a sandbox,
	// unless its creator says otherwise.
	PublicPorts bool `config:"public_ports"`
	// Network is what clients of OpenSandbox are told that sandboxes may reach:
	// NetworkDeny or NetworkAllow; "" where nothing is promised, and for RAGFlow.
	Network string `config:"network"`
}

// What FrontDoor.Kind may be.
const (
	FrontDoorRAGFlow     = "ragflow"
	FrontDoorOpenSandbox = "opensandbox"
	FrontDoorE2B         = "e2b"
	FrontDoorMCP         = "mcp"
	FrontDoorDeerFlow    = "deerflow"
)

// What FrontDoor.Network may be.
const (
	NetworkDeny  = "deny"
	NetworkAllow = "allow"
)

// frontDoorKinds are all of them, in the order in which they are explained.
func frontDoorKinds() []string {
	return []string{FrontDoorRAGFlow, FrontDoorOpenSandbox, FrontDoorE2B, FrontDoorMCP, FrontDoorDeerFlow}
}

var frontDoorLabel = regexp.MustCompile(`^(` + strings.Join(frontDoorKinds(), "|") + `)$`)

// Bounds of what a front door's settings may hold.
const (
	frontDoorSegments = `(/[A-Za-z0-9._~-]+){1,4}`
	maxFrontDoorPath  = 128
	maxImages         = 200
	maxImageName      = 255
	maxTemplateName   = 64 // as in a request of the REST API
	maxClientAddress  = 255
)

var frontDoorPath = regexp.MustCompile(`^` + frontDoorSegments + `$`)

// ownPaths begin what the broker itself serves, or may come to serve.
func ownPaths() []string {
	return []string{"/admin", "/api", "/docs", "/files", "/healthz", "/metrics", "/openapi.json", "/preview", "/readyz"}
}

// frontDoorSchema holds what the block of one kind may hold.
func frontDoorSchema(kind string) sdk.Schema {
	// RAGFlow's own server waits for so long for a container. OpenSandbox's clients give up
	// after 30 s, of which the making of a sandbox needs the rest.
	const wait = 10 * time.Second
	schema := sdk.Schema{
		{
			Name: "path", Type: sdk.TypeString, Default: "/" + kind, Pattern: frontDoorSegments, Max: sdk.Bound(maxFrontDoorPath),
			Description: "What the paths of this API begin with, where the REST API listens: 1 to 4 parts, each after a slash, and no slash at the end. No path of the broker's own, nor of another front door, is above or below it. Where `listen` is given there is none, unless it is given too.",
		},
		{
			Name: "listen", Type: sdk.TypeString,
			Description: `An address of this API's own, "host:port", such as "127.0.0.1:9000", for clients that know no path: it is at the root there, and nothing else of the broker is. With ` + "`tls`" + ` it speaks HTTPS too.`,
		},
		{
			Name: "provider", Type: sdk.TypeString, Min: sdk.Bound(1),
			Description: "The label of the provider that its instances are made on; the usual one unless given.",
		},
		span("wait", wait, 0, time.Hour, "How long a request may wait for its turn; `limits.max_wait` at most, also where it is not given."),
	}
	switch kind {
	case FrontDoorRAGFlow:
		return append(schema,
			span("timeout", 10*time.Second, 100*time.Millisecond, 24*time.Hour, "The time limit of a run; `limits.max_timeout` at most, also where it is not given."),
			sdk.Field{
				Name: "tenant", Type: sdk.TypeString, Min: sdk.Bound(1),
				Description: "The label of the tenant that a caller without a token is. Whoever reaches the port runs code as this tenant then. Without it such a caller is refused.",
			})
	case FrontDoorE2B:
		return append(schema,
			sdk.Field{
				Name: "domain", Type: sdk.TypeString, Min: sdk.Bound(1), Max: sdk.Bound(maxClientAddress), Placeholder: "sandboxes.example.com",
				Description: "A domain whose hosts all lead to the broker, perhaps with a port, such as sandboxes.example.com: clients that have it as `E2B_DOMAIN` find the API at api.sandboxes.example.com and each port of a sandbox at a host of its own, where `listen` of this block and of the REST API lead. They speak HTTPS there, so that a certificate for all these hosts is needed. No other API is at the hosts of this domain. Unless it is given, ports are reached by fields of the header alone.",
			},
			sdk.Field{
				Name: "public_ports", Type: sdk.TypeBoolean, Default: true,
				Description: "Whether programs that listen in a sandbox answer whoever knows its ID, as with E2B, unless its creator has said `allowPublicTraffic: false`. Where this is false, all of them take the traffic access token of the sandbox.",
			},
			sdk.Field{
				Name: "templates", Type: sdk.TypeMap, Max: sdk.Bound(maxImages),
				Description: "Names of templates that clients may ask for, each with the provider's template that it stands for, \"\" for its usual one: `templates = { \"data-analysis\" = \"python\" }`. `base` and `code-interpreter-v1` are there anyhow, and stand for the usual one unless they are given here. Every other template is not found.",
			},
			sdk.Field{
				Name: "network", Type: sdk.TypeString, Options: []string{NetworkDeny, NetworkAllow},
				Description: "What the operator says that sandboxes reach, nothing or everything: it is the provider that sees to it, and this changes nothing there. With `\"deny\"` clients that deny everything get sandboxes of any provider, and may not ask for hosts. Else what they deny or ask for needs a provider with the capability `network`.",
			})
	case FrontDoorMCP:
		return append(schema,
			sdk.Field{
				Name: "address", Type: sdk.TypeString, Min: sdk.Bound(1), Max: sdk.Bound(maxClientAddress), Placeholder: "sandboxes.example.com",
				Description: "The host by which browsers reach the REST API, with a port and a path if need be, such as sandboxes.example.com:8443: for the links to ports of sandboxes. The host that the request was sent to unless given.",
			})
	case FrontDoorDeerFlow:
		return append(schema,
			sdk.Field{
				Name: "address", Type: sdk.TypeString, Min: sdk.Bound(1), Max: sdk.Bound(maxClientAddress), Placeholder: "https://sandboxes.example.com",
				Description: "What the URLs of sandboxes begin with that it hands out: the host by which DeerFlow's gateway reaches the broker, with a port and a path if need be, such as https://sandboxes.example.com:8443. Without http:// or https:// the scheme is that of the request; unless given, the host is the one that the request was sent to.",
			},
			span("lease", time.Hour, time.Minute, maxLifetime, "How long a sandbox lives that nobody uses or asks for; `limits.max_lifetime` at most, also where it is not given."),
			sdk.Field{
				Name: "template", Type: sdk.TypeString, Min: sdk.Bound(1), Max: sdk.Bound(maxTemplateName),
				Description: "The provider's template that its sandboxes are made of; the usual one unless given.",
			})
	default:
		return append(schema,
			sdk.Field{
				Name: "address", Type: sdk.TypeString, Min: sdk.Bound(1), Max: sdk.Bound(maxClientAddress), Placeholder: "sandboxes.example.com",
				Description: "The host by which clients reach the broker, with a port and a path if need be, such as sandboxes.example.com:8443: for the addresses of sandboxes that it hands out. The host that the request was sent to unless given.",
			},
			sdk.Field{
				Name: "images", Type: sdk.TypeMap, Max: sdk.Bound(maxImages),
				Description: "Names of images that clients may ask for, each with the provider's template that it stands for, \"\" for its usual one: `images = { \"opensandbox/code-interpreter:v1.0.1\" = \"\", \"python:3.12\" = \"python\" }`. Every other image is refused, and all are where this is not given.",
			},
			sdk.Field{
				Name: "network", Type: sdk.TypeString, Options: []string{NetworkDeny, NetworkAllow},
				Description: "What the sandboxes of its providers can reach, nothing or everything: a client may ask for that as its `networkPolicy`. It is the provider that sees to it, and this changes nothing there: `\"deny\"` is for providers without a network, as `self_managed` is. Unless it is given nothing is promised, and every policy is refused.",
			})
	}
}

// frontDoorSchemas are those of all kinds, in their order.
func frontDoorSchemas() (schemas []sdk.Schema) {
	for _, kind := range frontDoorKinds() {
		schemas = append(schemas, frontDoorSchema(kind))
	}
	return schemas
}

// frontDoorReader reads front_door blocks. What they refer to may stand behind them, so
// that is looked at by finish.
type frontDoorReader struct {
	parser *parser
	doors  []readFrontDoor
}

// readFrontDoor is a block that was read.
type readFrontDoor struct {
	FrontDoor
	section section
	header  hcl.Range
}

// at is where a setting stands, or else the block.
func (d *readFrontDoor) at(setting string) hcl.Range {
	if a, given := d.section.setting(setting); given {
		return a.expr.Range()
	}
	return d.header
}

// given reports whether a setting is, and is right so far.
func (d *readFrontDoor) given(setting string) bool {
	_, given := d.section.setting(setting)
	return given
}

func (r *frontDoorReader) read(block *hclsyntax.Block) {
	door := readFrontDoor{FrontDoor: FrontDoor{Kind: block.Labels[0]}, header: block.DefRange()}
	door.section = r.parser.readLeaf(block, frontDoorSchema(door.Kind))
	r.parser.decode(door.section, &door.FrontDoor, door.header)
	if len(door.Images) == 0 {
		door.Images = nil
	}
	if door.given("listen") && !door.given("path") {
		door.Path = ""
	}
	if door.Kind == FrontDoorE2B {
		door.Templates = withUsualTemplates(door.Templates)
	}
	r.doors = append(r.doors, door)
}

// withUsualTemplates adds those that E2B's SDKs ask for by themselves.
func withUsualTemplates(given map[string]string) map[string]string {
	all := map[string]string{"base": "", "code-interpreter-v1": ""}
	maps.Copy(all, given)
	return all
}

// finish looks at what the blocks refer to, in a configuration that is read but for them.
func (r *frontDoorReader) finish(cfg *Config, body *hclsyntax.Body) {
	for i := range r.doors {
		door := &r.doors[i]
		r.checkPath(door, r.doors[:i])
		r.checkListen(door, r.doors[:i], cfg)
		r.checkWho(door, cfg, body)
		r.checkTemplates(door, "images", "an image", door.Images)
		r.checkTemplates(door, "templates", "a template", door.Templates)
		r.checkClientAddress(door)
		if !isName(door.Template, maxTemplateName) {
			r.parser.fail(door.at("template"), "Invalid value", fmt.Sprintf("template is the name of a template, of at most %d characters and without spaces.", maxTemplateName))
		}
		r.checkDomain(door, cfg)
		r.parser.atMost(door.section, "wait", &door.Wait, "limits.max_wait", cfg.Limits.MaxWait)
		r.parser.atMost(door.section, "timeout", &door.Timeout, "limits.max_timeout", cfg.Limits.MaxTimeout)
		r.parser.atMost(door.section, "lease", &door.Lease, "limits.max_lifetime", cfg.Limits.MaxLifetime)
		cfg.FrontDoors = append(cfg.FrontDoors, door.FrontDoor)
	}
}

// checkClientAddress looks at where clients are to find sandboxes.
func (r *frontDoorReader) checkClientAddress(door *readFrontDoor) {
	address := door.Address
	if door.Kind == FrontDoorDeerFlow {
		if scheme, rest, given := strings.Cut(address, "://"); given && (scheme == "http" || scheme == "https") {
			address = rest
		}
	}
	switch {
	case !door.given("address"), isClientAddress(address):
	case door.Kind == FrontDoorDeerFlow:
		r.parser.fail(door.at("address"), "Invalid value", "address is a host, and perhaps a scheme, a port and a path, such as sandboxes.example.com, http://10.1.2.3:9385 or https://example.com/sandboxes. It has no slash at its end.")
	default:
		r.parser.fail(door.at("address"), "Invalid value", "address is a host, and perhaps a port and a path, such as sandboxes.example.com, 10.1.2.3:9385 or example.com/sandboxes. It has no https:// before it, and no slash at its end.")
	}
}

// checkPath compares a path with the broker's own and with those of earlier blocks.
func (r *frontDoorReader) checkPath(door *readFrontDoor, earlier []readFrontDoor) {
	if door.Path == "" {
		return // there is none, or one that was reported
	}
	if hasDotSegment(door.Path) {
		r.parser.fail(door.at("path"), "Invalid value", "No part of path is . or .., which clients take out of addresses.")
		return
	}
	for _, own := range ownPaths() {
		if overlap(door.Path, own) {
			r.parser.fail(door.at("path"), "Invalid value", fmt.Sprintf("The paths that begin with %s are the broker's own, and path is above or below them. Choose another one.", own))
			return
		}
	}
	for i := range earlier {
		other := &earlier[i]
		if other.Path == "" || !overlap(door.Path, other.Path) {
			continue
		}
		here, there := door, other
		if !here.given("path") { // it is by the other one's choice that they meet
			here, there = other, door
		}
		place := here.at("path")
		r.parser.fail(place, "Invalid value", fmt.Sprintf("The path of front_door %q, at %s, is the same, above or below. Choose another one.",
			there.Kind, placeFrom(there.at("path"), place)))
		return
	}
}

// checkListen compares an address with the broker's own and with those of earlier blocks.
// Those that are written in other words and are the same are found when they are opened.
func (r *frontDoorReader) checkListen(door *readFrontDoor, earlier []readFrontDoor, cfg *Config) {
	r.parser.checkAddress(door.section, door.Listen)
	if !door.given("listen") || strings.HasSuffix(door.Listen, ":0") {
		return
	}
	other := ""
	switch i := slices.IndexFunc(earlier, func(d readFrontDoor) bool { return d.Listen == door.Listen }); {
	case door.Listen == cfg.Listen:
		other = "The REST API"
	case door.Listen == cfg.Metrics.Listen:
		other = "The server of the metrics"
	case door.Listen == cfg.PeersListen():
		other = "What other brokers connect to"
	case i >= 0:
		place := door.at("listen")
		other = fmt.Sprintf("front_door %q, at %s,", earlier[i].Kind, placeFrom(earlier[i].at("listen"), place))
	default:
		return
	}
	r.parser.fail(door.at("listen"), "Invalid value", other+" listens there. Choose another port.")
}

// checkDomain looks at a domain, which must not meet that of previews: each has its hosts
// for itself.
func (r *frontDoorReader) checkDomain(door *readFrontDoor, cfg *Config) {
	if !door.given("domain") {
		return
	}
	place := door.at("domain")
	door.Domain = strings.ToLower(door.Domain)
	host, ok := hostOfDomain(door.Domain)
	if !ok {
		r.parser.fail(place, "Invalid value", fmt.Sprintf("domain is a domain of at most %d characters, and perhaps a port, such as sandboxes.example.com or sandboxes.example.com:8443. It has no https:// and no * before it, and is no address of a machine.", maxPreviewDomain))
		return
	}
	if of := cfg.Previews.Domain; of != "" && (strings.HasSuffix("."+host, "."+of) || strings.HasSuffix("."+of, "."+host)) {
		r.parser.fail(place, "Invalid value", fmt.Sprintf("The hosts of previews, below %s, are below this domain, or the other way round. Choose another one.", of))
	}
}

// hostOfDomain is a domain without its port.
func hostOfDomain(domain string) (host string, ok bool) {
	host, port, found := strings.Cut(domain, ":")
	if found && checkListen("x:"+port) != nil || port == "0" {
		return "", false
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	return host, host != "" && len(host) <= maxPreviewDomain && hostName.MatchString(host) && strings.Trim(last, "0123456789") != ""
}

// FrontDoor returns the one of a kind; the zero value if there is none.
func (c *Config) FrontDoor(kind string) FrontDoor {
	for _, door := range c.FrontDoors {
		if door.Kind == kind {
			return door
		}
	}
	return FrontDoor{}
}

// overlap reports whether a path is another one, or above or below it.
func overlap(a, b string) bool {
	return strings.HasPrefix(a+"/", b+"/") || strings.HasPrefix(b+"/", a+"/")
}

func hasDotSegment(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(segment string) bool { return segment == "." || segment == ".." })
}

// checkWho looks for the provider and the tenant among the blocks.
func (r *frontDoorReader) checkWho(door *readFrontDoor, cfg *Config, body *hclsyntax.Body) {
	providers, tenants := labelsOf(body, "provider"), labelsOf(body, "tenant")
	known := door.given("provider") && slices.Contains(providers, door.Provider)
	if door.given("provider") && !known {
		r.parser.fail(door.at("provider"), "Unknown provider", "provider is not the label of a provider block. "+suggest(door.Provider, providers))
	}
	if !door.given("tenant") {
		return
	}
	if !slices.Contains(tenants, door.Tenant) {
		r.parser.fail(door.at("tenant"), "Unknown tenant", "tenant is not the label of a tenant block. "+suggest(door.Tenant, tenants))
		return
	}
	i := slices.IndexFunc(cfg.Tenants, func(t Tenant) bool { return t.Name == door.Tenant })
	if i >= 0 && known && len(cfg.Tenants[i].Providers) > 0 && !slices.Contains(cfg.Tenants[i].Providers, door.Provider) {
		r.parser.fail(door.at("provider"), "Provider not allowed", "This provider is not among the providers of the tenant that the front door has. Add it there, or choose another one.")
	}
	if door.Path != "" && listensToOthers(cfg.Listen) || door.Listen != "" && listensToOthers(door.Listen) {
		r.parser.add(SeverityWarning, door.at("tenant"), false, "Code of everybody",
			"Whoever reaches the port runs code as this tenant, without a token, and the broker listens to other machines. Leave tenant out where the clients can send a token, or see that nobody but them reaches the port.")
	}
}

// checkTemplates looks at a table from names that clients have, of what is said, to
// templates.
func (r *frontDoorReader) checkTemplates(door *readFrontDoor, setting, what string, table map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if !isName(name, maxImageName) || name == "" {
			r.parser.fail(door.at(setting), "Invalid value", fmt.Sprintf("The name of %s has 1 to %d characters, and no spaces.", what, maxImageName))
			return
		}
		if !isName(table[name], maxTemplateName) {
			r.parser.fail(door.at(setting), "Invalid value", fmt.Sprintf("A template has at most %d characters, and no spaces. It is \"\" for the provider's usual one.", maxTemplateName))
			return
		}
	}
}

// isName reports whether a text could be the name of an image or a template.
func isName(text string, most int) bool {
	return utf8.RuneCountInString(text) <= most && !strings.ContainsFunc(text, func(c rune) bool {
		return unicode.IsSpace(c) || !unicode.IsPrint(c)
	})
}

// isClientAddress reports whether a text is a host, with or without port and path.
func isClientAddress(address string) bool {
	u, err := url.Parse("//" + address)
	if err != nil || u.User != nil || strings.ContainsAny(address, `?#%\`) || strings.HasSuffix(u.Host, ":") {
		return false
	}
	host := u.Hostname()
	if host == "" || net.ParseIP(host) == nil && !hostName.MatchString(host) {
		return false
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
			return false
		}
	}
	return u.Path == "" || frontDoorPath.MatchString(u.Path) && !hasDotSegment(u.Path)
}
