package config

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

var (
	providerLabel = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	tenantLabel   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
)

// parse reads all files. What it returns is of use only if nothing was reported
// as an error.
func (p *parser) parse() *Config {
	body := p.readAll()
	if body == nil {
		return &Config{}
	}
	if len(body.Attributes) == 0 && len(body.Blocks) == 0 {
		p.fail(hcl.Range{}, "The configuration is empty", "It takes at least one provider block and one tenant block.")
		return &Config{}
	}

	cfg := &Config{}
	p.keys.attr = body.Attributes[keyFileSetting]
	// Although nothing may be sealed yet: a mistake shows before it matters.
	cfg.keys, _ = p.keyring()
	// The defaults hold when the blocks are not given.
	cfg.Log = p.readLog(emptyBlock("log"))
	cfg.Limits = p.readLimits(emptyBlock("limits"))
	quotas := newQuotaReader(p, body.Blocks)
	cfg.Quota = quotas.usual
	cfg.Audit = p.readAudit(emptyBlock("audit"))
	cfg.Connections = p.readConnections(emptyBlock("connections"))
	tokens := newTokenReader(p)
	doors := &frontDoorReader{parser: p}
	tenants := &tenantReader{parser: p, providers: labelsOf(body, "provider"), tokens: tokens, quotas: quotas}
	templates := &templateReader{parser: p, providers: tenants.providers, tenants: labelsOf(body, "tenant")}
	var active, metrics, peers section
	p.readBlocks(body.Blocks, map[string]blockKind{
		"log":         {read: func(b *hclsyntax.Block) { cfg.Log = p.readLog(b) }},
		"metrics":     {read: func(b *hclsyntax.Block) { cfg.Metrics, metrics = p.readMetrics(b) }},
		"tracing":     {read: func(b *hclsyntax.Block) { cfg.Tracing = p.readTracing(b) }},
		"tls":         {read: func(b *hclsyntax.Block) { cfg.TLS = p.readTLS(b) }},
		"peers":       {read: func(b *hclsyntax.Block) { cfg.Peers, peers = p.readPeers(b) }},
		"limits":      {read: func(b *hclsyntax.Block) { cfg.Limits = p.readLimits(b) }},
		"quota":       {read: func(*hclsyntax.Block) {}}, // by newQuotaReader, before the tenants
		"admin":       {read: func(b *hclsyntax.Block) { cfg.Admin = tokens.readAdmin(b) }},
		"previews":    {read: func(b *hclsyntax.Block) { cfg.Previews = p.readPreviews(b) }},
		"connections": {read: func(b *hclsyntax.Block) { cfg.Connections = p.readConnections(b) }},
		"audit":       {read: func(b *hclsyntax.Block) { cfg.Audit = p.readAudit(b) }},
		"providers":   {read: func(b *hclsyntax.Block) { active = p.readLeaf(b, activeSchema()) }},
		"provider": {label: providerLabel, reserved: reservedProviders(), read: func(b *hclsyntax.Block) {
			if provider := p.readProvider(b); provider != nil {
				cfg.Providers = append(cfg.Providers, provider)
			}
		}},
		"tenant": {label: tenantLabel, read: func(b *hclsyntax.Block) {
			cfg.Tenants = append(cfg.Tenants, tenants.read(b))
		}},
		"template": {label: templateName, read: func(b *hclsyntax.Block) {
			cfg.Templates = append(cfg.Templates, templates.read(b))
		}},
		"front_door": {label: frontDoorLabel, names: frontDoorKinds(), read: doors.read},
	})
	p.readRoot(cfg, body)
	p.readShared(cfg, peers)
	doors.finish(cfg, body)
	if a, given := metrics.setting("listen"); given && cfg.Metrics.Listen == cfg.Listen && !strings.HasSuffix(cfg.Listen, ":0") {
		p.fail(a.expr.Range(), "Invalid value", "The REST API listens there. Give the metrics another port.")
	}
	if a, given := peers.setting("listen"); given && cfg.Peers != nil && slices.Contains([]string{cfg.Listen, cfg.Metrics.Listen}, cfg.PeersListen()) && !strings.HasSuffix(cfg.PeersListen(), ":0") {
		p.fail(a.expr.Range(), "Invalid value", "The broker listens there for something else. Give its peers another port.")
	}
	cfg.ActiveProvider = p.chooseActive(active, body)
	cfg.FallbackProviders, cfg.FallbackWritten = p.chooseFallback(active, cfg.ActiveProvider, body)
	cfg.RoutingPolicy = "ordered"
	if policy, ok := active.Settings["policy"].(string); ok {
		cfg.RoutingPolicy = policy
	}
	cfg.OnStop = OnStopDestroy
	if onStop, ok := active.Settings["on_stop"].(string); ok {
		cfg.OnStop = onStop
	}
	cfg.FailOver.StartGrace, _ = active.Settings["start_grace"].(time.Duration)
	cfg.FailOver.SpillAfter, _ = active.Settings["spill_after"].(time.Duration)
	cfg.FailOver.UnclearTimeout, _ = active.Settings["unclear_timeout"].(time.Duration)
	if len(labelsOf(body, "tenant")) == 0 {
		p.fail(hcl.Range{}, "No tenant", "Nobody could use the broker: add a tenant block. `sandbox-broker token` makes a token for it.")
	}
	p.warnOfDemoToken(cfg)
	return cfg
}

// emptyBlock stands for a block that the file leaves out.
func emptyBlock(kind string) *hclsyntax.Block {
	return &hclsyntax.Block{Type: kind, Body: &hclsyntax.Body{}}
}

func (p *parser) readLog(block *hclsyntax.Block) Log {
	var log Log
	p.decode(p.readLeaf(block, logSchema()), &log, block.DefRange())
	return log
}

func (p *parser) readMetrics(block *hclsyntax.Block) (Metrics, section) {
	var metrics Metrics
	s := p.readLeaf(block, metricsSchema())
	p.decode(s, &metrics, block.DefRange())
	p.checkAddress(s, metrics.Listen)
	return metrics, s
}

func (p *parser) readLimits(block *hclsyntax.Block) Limits {
	var limits Limits
	s := p.readLeaf(block, limitsSchema())
	p.decode(s, &limits, block.DefRange())
	p.atMost(s, "default_timeout", &limits.DefaultTimeout, "max_timeout", limits.MaxTimeout)
	p.atMost(s, "default_ttl", &limits.DefaultTTL, "max_lifetime", limits.MaxLifetime)
	p.atMost(s, "max_idle", &limits.MaxIdle, "max_lifetime", limits.MaxLifetime)
	p.atMost(s, "snapshot_ttl", &limits.SnapshotTTL, "max_snapshot_ttl", limits.MaxSnapshotTTL)
	return limits
}

// atMost reports a setting that was given above its maximum. A low maximum alone
// lowers the setting's default too. A maximum of 0 may be one that was wrong, which was
// reported.
func (p *parser) atMost(s section, name string, value *time.Duration, maximum string, most time.Duration) {
	if a, given := s.setting(name); given && (most > 0 || p.failures == 0) && *value > most {
		p.fail(a.expr.Range(), "Invalid value", fmt.Sprintf("%s is above %s, which is %s.", name, maximum, most))
	}
	*value = min(*value, most)
}

// decode copies settings into a struct with `config` tags.
func (p *parser) decode(s section, into any, header hcl.Range) {
	if err := s.Decode(into); err != nil {
		p.fail(header, "Settings not understood", err.Error())
	}
}

// readRoot reads the settings outside of all blocks. A block's name with an
// equals sign behind it ends up here.
func (p *parser) readRoot(cfg *Config, body *hclsyntax.Body) {
	var own hclsyntax.Body
	own.Attributes = hclsyntax.Attributes{}
	for name, attr := range body.Attributes {
		switch name {
		case "log", "metrics", "tracing", "tls", "peers", "limits", "quota", "providers", "admin", "audit", "connections", "previews":
			p.fail(attr.NameRange, "Block expected", fmt.Sprintf("%s is a block: write it without the equals sign, %s { ... }.", name, name))
		case "provider", "tenant", "template", "front_door":
			p.fail(attr.NameRange, "Block expected", fmt.Sprintf("%s is a block with a name: write %s \"name\" { ... }.", name, name))
		case keyFileSetting: // was read already
		default:
			own.Attributes[name] = attr
		}
	}
	s := p.readSection(&own, rootSchema(), hcl.Range{})
	cfg.Listen, _ = s.Settings["listen"].(string)
	p.checkAddress(s, cfg.Listen)
	p.readState(cfg, s, body)
	if cfg.Audit.Dir == "" {
		cfg.Audit.Dir = filepath.Join(cfg.StateDir, "audit")
	}
	dir, valid := s.Settings["plugin_dir"].(string)
	switch a, given := find(s.attributes, "plugin_dir"); {
	case valid:
		cfg.PluginDir = absolute(p.dirOf(body, "plugin_dir"), dir)
	case !given || a.value == nil && !a.broken:
		cfg.PluginDir = p.around.pluginDir
	}
}

// readState reads where the state is: in a directory or in a database.
func (p *parser) readState(cfg *Config, s section, body *hclsyntax.Body) {
	state, _ := s.Settings["state"].(string)
	data, _ := s.Settings["data"].(string)
	a, _ := s.setting("state")
	if !isDatabase(state) {
		cfg.StateDir = absolute(p.dirOf(body, "state"), state)
		if at, given := s.setting("data"); given {
			p.fail(at.expr.Range(), "Of no use", "data is for a state in a database; where state is a directory, that has everything. Take data out.")
		}
		return
	}
	cfg.StateDir = absolute(p.dirOf(body, "data"), data)
	cfg.Database = state
	u, err := url.Parse(state)
	switch {
	case err != nil || u.Host == "" && !u.Query().Has("host") || strings.Trim(u.Path, "/") == "":
		p.add(SeverityError, a.expr.Range(), false, "Invalid value", `state is not the URL of a database. It is "postgres://USER@HOST/NAME", such as "postgres://broker@db.example.com/sandbox?sslmode=verify-full".`)
	case !a.sensitive && hasPassword(u):
		p.add(SeverityError, a.expr.Range(), false, "Password in the open", `state has a password, which must not stand in this file. Write state = env("NAME"), file("PATH") or sealed("...").`)
	}
}

// isDatabase reports whether the setting state names a database, and no directory.
func isDatabase(state string) bool {
	return strings.HasPrefix(state, "postgres://") || strings.HasPrefix(state, "postgresql://")
}

func hasPassword(u *url.URL) bool {
	_, given := u.User.Password()
	return given || u.Query().Has("password") || u.Query().Has("sslpassword")
}

// dirOf is where a setting's relative path starts.
func (p *parser) dirOf(body *hclsyntax.Body, setting string) string {
	if attr, given := body.Attributes[setting]; given {
		return p.documents[attr.NameRange.Filename].dir()
	}
	return p.main.dir()
}

// checkAddress looks at the setting listen of a section.
func (p *parser) checkAddress(s section, address string) {
	if a, given := s.setting("listen"); given {
		if err := checkListen(address); err != nil {
			p.fail(a.expr.Range(), "Invalid value", fmt.Sprintf("listen %s. It is \"host:port\", such as \"127.0.0.1:9385\" or \":9385\" for all addresses.", err))
		}
	}
}

// checkListen does not repeat the address: it may come from env().
func checkListen(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("is not an address with a port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("must end in a port from 0 to 65535")
	}
	if net.ParseIP(host) == nil && !hostName.MatchString(host) {
		return fmt.Errorf("must begin with an IP address or a host name")
	}
	return nil
}

// reservedProviders are names that no provider can have: the admin API lists the
// settings of all by their names, beside the name of the active one.
func reservedProviders() []string { return []string{"active"} }

// CheckProviderName says why no provider block can have a name, or nil.
func CheckProviderName(name string) error {
	switch {
	case !providerLabel.MatchString(name):
		return fmt.Errorf("%q is not of the form %s", name, providerLabel)
	case slices.Contains(reservedProviders(), name):
		return fmt.Errorf("%q is a word of the admin API, where it stands beside the names of providers", name)
	}
	return nil
}

var hostName = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*)?$`)

func (p *parser) chooseActive(s section, body *hclsyntax.Body) string {
	labels := labelsOf(body, "provider")
	if slices.ContainsFunc(labels, func(label string) bool { return !providerLabel.MatchString(label) }) {
		return "" // to be corrected first
	}
	given := slices.ContainsFunc(body.Blocks, func(b *hclsyntax.Block) bool { return b.Type == "providers" })
	switch {
	case len(labels) == 0:
		p.fail(hcl.Range{}, "No provider", "Nothing could run here: add a provider block.")
	case !given && len(labels) == 1:
		return labels[0]
	case !given:
		p.fail(hcl.Range{}, "No active provider", fmt.Sprintf("There are several providers: add providers { active = %q } or another of %s.", labels[0], strings.Join(labels, ", ")))
	}
	active, _ := s.Settings["active"].(string)
	if a, ok := s.setting("active"); ok && len(labels) > 0 && !slices.Contains(labels, active) {
		p.fail(a.expr.Range(), "Unknown provider", "active is not the label of a provider block. "+suggest(active, labels))
	}
	return active
}

// chooseFallback reads the list of those that take over from the active one, and as it
// is written. The active one may be among them, and is passed over: so another one can
// be made active, and the first one again, without the list being touched.
func (p *parser) chooseFallback(s section, active string, body *hclsyntax.Body) (chosen, written []string) {
	a, given := s.setting("fallback")
	if !given {
		return nil, nil
	}
	labels := labelsOf(body, "provider")
	itself := -1
	for i, label := range s.Settings["fallback"].([]string) {
		switch {
		case slices.Contains(written, label):
			p.fail(a.itemRange(i), "Provider named twice", "Remove one of the two.")
		case !slices.Contains(labels, label):
			p.fail(a.itemRange(i), "Unknown provider", "This is not the label of a provider block. "+suggest(label, labels))
		default:
			written = append(written, label)
			if label == active {
				itself = i
			} else {
				chosen = append(chosen, label)
			}
		}
	}
	if itself >= 0 {
		detail := "This is the active provider. It is passed over here as long as it is."
		if len(chosen) == 0 {
			detail = "This is the active provider, so nobody takes over from it as long as it is."
		}
		p.add(SeverityWarning, a.itemRange(itself), false, "Active provider among its fallback", detail)
	}
	return chosen, written
}

// labelsOf returns the first labels of all blocks of a kind, good and bad: a
// reference to a block whose own mistake is reported is not a second mistake.
func labelsOf(body *hclsyntax.Body, kind string) []string {
	var labels []string
	for _, block := range body.Blocks {
		if block.Type == kind && len(block.Labels) > 0 && !slices.Contains(labels, block.Labels[0]) {
			labels = append(labels, block.Labels[0])
		}
	}
	return labels
}
