package providertest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func describes(change func(*sdk.Description)) func(*broken) {
	return func(b *broken) {
		b.describe = func(d sdk.Description) sdk.Description {
			d.Languages, d.Templates, d.Schema = slices.Clone(d.Languages), slices.Clone(d.Templates), slices.Clone(d.Schema)
			change(&d)
			return d
		}
	}
}

func TestWrongDescriptionsAreFound(t *testing.T) {
	checkMutations(t, map[string]mutation{
		"no version":      {among: "description/", fails: []string{"it says its version and what it is"}, breaks: describes(func(d *sdk.Description) { d.Version = "" })},
		"another version": {among: "description/", fails: []string{"every process describes itself alike"}, breaks: describes(func(d *sdk.Description) { d.Version = fmt.Sprint(rand.Int64()) })},
		"an alias": {among: "description/", fails: []string{"it offers languages by their canonical names"}, breaks: describes(func(d *sdk.Description) {
			d.Languages[0] = "py"
			d.Templates[0].Languages = d.Languages
		})},
		"a language twice": {among: "description/", fails: []string{"it offers languages by their canonical names"}, breaks: describes(func(d *sdk.Description) { d.Languages = append(d.Languages, sdk.Bash) })},
		"a template twice": {among: "description/", fails: []string{"it offers templates, each once"}, breaks: describes(func(d *sdk.Description) { d.Templates = append(d.Templates, d.Templates[0]) })},
		"a template of a language that is not offered": {among: "description/", fails: []string{"templates list languages that it offers"}, breaks: describes(func(d *sdk.Description) {
			d.Templates = append(d.Templates, sdk.Template{Name: "other", Languages: []sdk.Language{"r"}})
		})},
		"a language without a template": {among: "description/", fails: []string{"every language has a template"}, breaks: describes(func(d *sdk.Description) { d.Templates[0].Languages = []sdk.Language{sdk.Python} })},
		"an impossible name":            {among: "description/it starts", fails: []string{" and describes itself"}, breaks: describes(func(d *sdk.Description) { d.Name = "No Name" })},
		"a default that breaks its own bounds": {among: "description/it starts", fails: []string{" and describes itself"}, breaks: describes(func(d *sdk.Description) {
			d.Schema = append(d.Schema, sdk.Field{Name: "x", Type: sdk.TypeInteger, Default: 5, Max: sdk.Bound(4), Description: "x"})
		})},
		"a setting without description": {among: "schema/", fails: []string{"every setting is described"}, breaks: describes(func(d *sdk.Description) { d.Schema[2].Description = "" })},
		"a key that is not secret": {among: "schema/", fails: []string{"settings that sound secret are secret"}, breaks: describes(func(d *sdk.Description) {
			d.Schema = append(d.Schema, sdk.Field{Name: "api_key", Type: sdk.TypeString, Description: "A key."})
		})},
		"a secret with a default": {among: "schema/", fails: []string{"secrets have no default and no options"}, breaks: describes(func(d *sdk.Description) {
			d.Schema = append(d.Schema, sdk.Field{Name: "api_key", Type: sdk.TypeString, Secret: true, Default: "hunter2", Description: "A key."})
		})},
	})
}

func TestWrongConfigurationsAreFound(t *testing.T) {
	checkMutations(t, map[string]mutation{
		"settings that it describes are refused": {among: "configure/the settings", fails: []string{" of this run are accepted"}, breaks: func(b *broken) {
			b.configure = func(sdk.ConfigureRequest) error { return sdk.FieldErrorf(sdk.CodeInvalidConfig, "mode", "no") }
		}},
		"a secret in an error": {among: "configure/", fails: []string{"a refusal does not repeat a secret"}, breaks: func(b *broken) {
			b.configure = func(req sdk.ConfigureRequest) error {
				if token := req.Settings["token"].(string); strings.HasPrefix(token, "canary") {
					return sdk.Errorf(sdk.CodeConnectionFailed, "the token %s is not accepted", token)
				}
				return nil
			}
		}},
		"a secret in the details of its health": {among: "configure/", fails: []string{"what it shows and logs has no secrets"}, breaks: func(b *broken) {
			var token string
			b.configure = func(req sdk.ConfigureRequest) error { token = req.Settings["token"].(string); return nil }
			b.health = func(h sdk.Health) (sdk.Health, error) { h.Details["token"] = token; return h, nil }
		}},
		"never healthy": {among: "health/it is", fails: []string{" healthy with the settings of this run"}, patience: 0.05, breaks: func(b *broken) {
			b.health = func(h sdk.Health) (sdk.Health, error) { h.Healthy = false; return h, nil }
		}},
		"health unknown now and then": {among: "health/a probe", fails: []string{" is answered in time"}, breaks: func(b *broken) {
			var calls atomic.Int64
			b.health = func(h sdk.Health) (sdk.Health, error) {
				if calls.Add(1)%3 == 0 {
					return h, errors.New("busy")
				}
				return h, nil
			}
		}},
		"health unknown while code runs": {among: "health/", fails: []string{"probes are answered while code runs"}, breaks: func(b *broken) {
			var running atomic.Int64
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				running.Add(1)
				defer running.Add(-1)
				return b.Provider.Execute(ctx, req, out)
			}
			b.health = func(h sdk.Health) (sdk.Health, error) { h.Healthy = running.Load() == 0; return h, nil }
		}},
		"a counter that goes back": {among: "health/", fails: []string{"counters do not go back"}, breaks: func(b *broken) {
			value := 1000.0
			var mu sync.Mutex
			b.health = func(h sdk.Health) (sdk.Health, error) {
				mu.Lock()
				defer mu.Unlock()
				value--
				h.Metrics[0].Value = value
				return h, nil
			}
		}},
	})
}

func TestWrongLifeCyclesAreFound(t *testing.T) {
	checkMutations(t, map[string]mutation{
		"IDs that begin alike": {among: "lifecycle/no ID", fails: []string{" is the prefix of another"}, wraps: renaming(func(n int) string { return strings.Repeat("x", n) })},
		"keys that mean nothing": {among: "lifecycle/", fails: []string{"a key names one creation", "a key names one creation among many at once"}, breaks: func(b *broken) {
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				req.IdempotencyKey = fmt.Sprint(rand.Int64())
				return b.Provider.Create(ctx, req)
			}
		}},
		"one key for all": {among: "lifecycle/other keys", fails: []string{" make other instances"}, breaks: func(b *broken) {
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				req.IdempotencyKey = "one"
				return b.Provider.Create(ctx, req)
			}
		}},
		"templates of any name": {among: "lifecycle/", fails: []string{"a template that it does not offer is refused"}, breaks: func(b *broken) {
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				req.Template = "any"
				return b.Provider.Create(ctx, req)
			}
		}},
		"an instance of another template": {among: "lifecycle/", fails: []string{"every template makes an instance"}, breaks: func(b *broken) {
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				made, err := b.Provider.Create(ctx, req)
				made.Template = "other"
				return made, err
			}
		}},
		"a list of nothing": {among: "lifecycle/", fails: []string{"an instance that was made is listed", "a key names one creation"}, breaks: func(b *broken) {
			b.list = func([]sdk.Instance) []sdk.Instance { return nil }
		}},
		"destroyed instances that are not found": {among: "lifecycle/", fails: []string{"to destroy twice is a success", "to destroy what never was is a success", "to destroy many times at once is a success"}, breaks: func(b *broken) {
			b.destroy = func(ctx context.Context, id string) error {
				list, err := b.Provider.List(ctx)
				if err == nil && !slices.ContainsFunc(list, func(i sdk.Instance) bool { return i.ID == id }) {
					return sdk.Errorf(sdk.CodeNotFound, "no such instance")
				}
				return b.Provider.Destroy(ctx, id)
			}
		}},
		"destroyed instances that live": {
			among: "lifecycle/", patience: 1,
			fails:  []string{"an instance that was destroyed is not listed", "to destroy many times at once is a success", "a destroyed instance executes nothing", "to destroy ends what executes", "nothing is left when all was destroyed"},
			breaks: func(b *broken) { b.destroy = func(context.Context, string) error { return nil } },
		},
		"destroyed instances that end all others": {among: "lifecycle/other instances", fails: []string{" go on after a destroy"}, breaks: func(b *broken) {
			b.destroy = func(ctx context.Context, _ string) error {
				list, err := b.Provider.List(ctx)
				for _, i := range list {
					err = errors.Join(err, b.Provider.Destroy(ctx, i.ID))
				}
				return err
			}
		}},
	})
}

func TestWrongLabelsAreFound(t *testing.T) {
	listing := func(change func(labels map[string]string)) func(*broken) {
		return func(b *broken) {
			b.list = func(list []sdk.Instance) []sdk.Instance {
				for i := range list {
					list[i].Labels = maps.Clone(list[i].Labels)
					change(list[i].Labels)
				}
				return list
			}
		}
	}
	var sharedMu sync.Mutex
	shared := map[string]sdk.Instance{}
	checkMutations(t, map[string]mutation{
		"an instance without labels": {among: "labels/", fails: []string{"an instance carries its labels"}, breaks: func(b *broken) {
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				made, err := b.Provider.Create(ctx, req)
				made.Labels = nil
				return made, err
			}
		}},
		"a list without labels": {
			among:  "labels/",
			fails:  []string{"List returns labels and template", "every instance has labels of its own", "labels of all letters come back unchanged", "long labels come back unchanged", "labels beyond the usual ones come back"},
			breaks: listing(func(labels map[string]string) { clear(labels) }),
		},
		"labels of plain letters": {among: "labels/", fails: []string{"labels of all letters come back unchanged"}, breaks: listing(func(labels map[string]string) {
			labels[sdk.LabelSession] = strings.Map(func(r rune) rune {
				if r > 127 {
					return '_'
				}
				return r
			}, labels[sdk.LabelSession])
		})},
		"short labels": {among: "labels/", fails: []string{"long labels come back unchanged"}, breaks: listing(func(labels map[string]string) {
			labels[sdk.LabelSession] = labels[sdk.LabelSession][:min(63, len(labels[sdk.LabelSession]))]
		})},
		"the usual labels only": {among: "labels/", fails: []string{"labels beyond the usual ones come back"}, breaks: listing(func(labels map[string]string) { delete(labels, "generation") })},
		"labels of another instance": {among: "labels/", fails: []string{"every instance has labels of its own"}, breaks: func(b *broken) {
			b.list = func(list []sdk.Instance) []sdk.Instance {
				for i := range list {
					list[i].Labels = list[0].Labels
				}
				return list
			}
		}},
		"instances of all brokers": {among: "labels/another broker's instances are", fails: []string{" not listed"}, breaks: func(b *broken) {
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				made, err := b.Provider.Create(ctx, req)
				sharedMu.Lock()
				defer sharedMu.Unlock()
				shared[made.ID] = made
				return made, err
			}
			b.list = func([]sdk.Instance) []sdk.Instance {
				sharedMu.Lock()
				defer sharedMu.Unlock()
				return slices.Collect(maps.Values(shared))
			}
		}},
	})
}
