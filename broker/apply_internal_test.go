package broker

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"reflect"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/generation"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/routing"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/config/configtest"
)

// elsewhere are the fields, or what they are in, that no part of the broker is handed,
// with who goes by them.
var elsewhere = map[string]string{
	"Database":               "a reload refuses another one",
	"FallbackWritten":        "nobody: FallbackProviders says what it means",
	"Limits.ShutdownTimeout": "stop reads it from the generation in force",
	"Listen":                 "a reload opens it, and Apply moves the API there",
	"Log.Format":             "a reload refuses another one",
	"Metrics.Listen":         "a reload opens it, and Apply moves the metrics there",
	"OnStop":                 "stop reads it from the generation in force",
	"PluginDir":              "a reload starts the providers anew",
	"Providers[0].Env":       "a reload starts the provider anew",
	"Providers[0].Plugin":    "a reload starts the provider anew",
	"Providers[0].SHA256":    "a reload starts the provider anew",
	"Quota":                  "the quota of each tenant has what it does not say itself",
	"Revision":               "what is shown of the generation in force",
	"StateDir":               "a reload refuses another one",
	"Templates":              "Apply has them built, and tenants are told of those in force",
	"Tenants[0].TokenSHA256": "the directory of tenants in the generation",
	"Tenants[0].Webhooks":    "a delivery reads them from the generation in force",
}

// handed is all that requests and the parts of the broker go by of a configuration.
type handed struct {
	settings    settings
	offer       instance.Offer
	adminTokens [][32]byte
}

func handedOf(cfg *config.Config) handed {
	catalog := &generation.Catalog{Router: routing.New()}
	catalog.Set(generation.New(cfg, nil, nil))
	return handed{settingsOf(cfg, nil), catalog.Offer(tenant.Tenant{Name: configtest.Word, Since: 1}), catalog.AdminTokens()}
}

// TestEachFieldIsHandedOn changes each field of a configuration, however deep, and looks
// whether that reaches what a reload hands on. A field that does not would be accepted,
// shown, and without effect.
func TestEachFieldIsHandedOn(t *testing.T) {
	maker := configtest.New(t)
	config := func() *config.Config {
		cfg := maker.Config()
		cfg.Connections.Total, cfg.Connections.WithoutToken = 100, 10 // which bound the others
		cfg.Log.Level = "debug"                                       // what is no level is none
		return cfg
	}
	before := handedOf(config())
	assert.Assert(t, reflect.DeepEqual(handedOf(config()), before), "nothing has changed, and something else is handed on")
	fields, _ := maker.Fields()
	unused := maps.Clone(elsewhere)
	for _, f := range fields {
		cfg := config()
		f.Change(cfg)
		if !reflect.DeepEqual(handedOf(cfg), before) {
			continue
		}
		known := false
		for in := range elsewhere {
			if strings.HasPrefix(f.Path, in) {
				known = true
				delete(unused, in)
			}
		}
		assert.Check(t, known, "%s is handed to nobody: hand it on in settingsOf, or say in the table who goes by it", f.Path)
	}
	assert.Check(t, is.Len(unused, 0), "these are handed on: take them from the table")
}

// TestHandGivesEverySetting looks for each setting in the body of hand.
func TestHandGivesEverySetting(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "apply.go", nil, 0)
	assert.NilError(t, err)
	given := map[string]bool{}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "hand" {
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if from, ok := s.X.(*ast.Ident); ok && from.Name == "s" {
						given[s.Sel.Name] = true
					}
				}
				return true
			})
		}
	}
	for f := range reflect.TypeFor[settings]().Fields() {
		assert.Check(t, is.Contains(given, f.Name), "hand does not give it to anybody")
	}
}
