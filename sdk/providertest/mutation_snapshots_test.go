package providertest_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest/internal/local"
)

// keeping is the provider with calls of its snapshots changed.
type keeping struct {
	*capable
	snapshot       func(context.Context, sdk.SnapshotRequest) (sdk.Snapshot, error)
	deleteSnapshot func(context.Context, string) error
	listSnapshots  func([]sdk.Snapshot) []sdk.Snapshot
}

func (k *keeping) Snapshot(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
	return k.snapshot(ctx, req)
}

func (k *keeping) DeleteSnapshot(ctx context.Context, id string) error {
	return k.deleteSnapshot(ctx, id)
}

func (k *keeping) ListSnapshots(ctx context.Context) ([]sdk.Snapshot, error) {
	list, err := k.Provider.ListSnapshots(ctx)
	return k.listSnapshots(list), err
}

// origins are the instances that snapshots are of, by the ID of the snapshot.
type origins struct {
	mu  sync.Mutex
	all map[string]string
}

func (o *origins) of(snapshot string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[snapshot]
}

func changingSnapshots(change func(*keeping, *origins)) func(*local.Provider) sdk.Provider {
	return func(p *local.Provider) sdk.Provider {
		c := changing(func(*capable) {})(p).(*capable)
		k := &keeping{
			capable: c, deleteSnapshot: p.DeleteSnapshot,
			listSnapshots: func(list []sdk.Snapshot) []sdk.Snapshot { return list },
		}
		o := &origins{all: map[string]string{}}
		k.snapshot = func(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
			made, err := p.Snapshot(ctx, req)
			o.mu.Lock()
			defer o.mu.Unlock()
			o.all[made.ID] = req.InstanceID
			return made, err
		}
		change(k, o)
		return k
	}
}

// tellingOfKept changes what is said of a snapshot that was made.
func tellingOfKept(change func(*sdk.Snapshot)) func(*local.Provider) sdk.Provider {
	return changingSnapshots(func(k *keeping, _ *origins) {
		before := k.snapshot
		k.snapshot = func(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
			made, err := before(ctx, req)
			change(&made)
			return made, err
		}
	})
}

// askingToKeep changes what is asked of the provider for a snapshot.
func askingToKeep(change func(*sdk.SnapshotRequest)) func(*local.Provider) sdk.Provider {
	return changingSnapshots(func(k *keeping, _ *origins) {
		before := k.snapshot
		k.snapshot = func(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
			change(&req)
			return before(ctx, req)
		}
	})
}

// copying changes how an instance is made of a snapshot.
func copying(change func(k *keeping, o *origins, ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error)) func(*local.Provider) sdk.Provider {
	return changingSnapshots(func(k *keeping, o *origins) {
		k.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
			if req.Snapshot == nil {
				return k.Provider.Create(ctx, req)
			}
			return change(k, o, ctx, req)
		}
	})
}

func TestWrongSnapshotsAreFound(t *testing.T) {
	const group = "snapshots/"
	checkMutations(t, map[string]mutation{
		"a copy is a fresh instance": {
			among: group + "(files|several|it outlives its|.*variables in the copy|.*listed as those)",
			fails: []string{
				group + "files are in the copy as they were", group + "several copies at once are apart", group + "it outlives its instance",
				group + "python/a context goes on with its variables in the copy", group + "python/the contexts of a copy are listed as those of the original",
			},
			wraps: copying(func(k *keeping, _ *origins, ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				req.Snapshot = nil
				return k.Provider.Create(ctx, req)
			}),
		},
		"a copy is of the moment at which it is made": {
			among: group + "(what is written later|.*what a context does later)", fails: []string{group + "what is written later is not in the copy", group + "python/what a context does later is not in the copy"},
			wraps: copying(func(k *keeping, o *origins, ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				now, err := k.Provider.Snapshot(ctx, sdk.SnapshotRequest{InstanceID: o.of(req.Snapshot.ID), Key: req.Snapshot.Key, IdempotencyKey: req.IdempotencyKey})
				if err != nil {
					return sdk.Instance{}, err
				}
				defer func() { _ = k.Provider.DeleteSnapshot(ctx, now.ID) }()
				req.Snapshot.ID = now.ID
				return k.Provider.Create(ctx, req)
			}),
		},
		"all copies are one": {
			among: group + "(what a copy writes|.*what the context of a copy|several)",
			fails: []string{group + "what a copy writes is its own", group + "several copies at once are apart", group + "python/what the context of a copy does is not in the original"},
			wraps: copying(func(k *keeping, _ *origins, ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				req.IdempotencyKey = req.Snapshot.ID
				return k.Provider.Create(ctx, req)
			}),
		},
		"the original ends": {
			among: group + "(the original|code that runs)", fails: []string{group + "the original runs on", group + "code that runs in the original meanwhile runs to its end"},
			wraps: changingSnapshots(func(k *keeping, _ *origins) {
				before := k.snapshot
				k.snapshot = func(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
					made, err := before(ctx, req)
					return made, errors.Join(err, k.Destroy(ctx, req.InstanceID))
				}
			}),
		},
		"labels are lost": {
			among: group + "it (says|is listed)", fails: []string{group + "it says what it is", group + "it is listed with its labels until it is deleted"},
			wraps: changingSnapshots(func(k *keeping, _ *origins) {
				before := k.snapshot
				k.snapshot = func(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
					made, err := before(ctx, req)
					made.Labels = maps.Clone(req.Labels)
					delete(made.Labels, sdk.LabelSnapshot)
					return made, err
				}
			}),
		},
		"a template that it is not of": {
			among: group + "it says", fails: []string{" what it is"}, wraps: tellingOfKept(func(s *sdk.Snapshot) { s.Template = "another" }),
		},
		"a clock of 1970": {
			among: group + "it says", fails: []string{" what it is"}, wraps: tellingOfKept(func(s *sdk.Snapshot) { s.CreatedAt = time.Unix(0, 0) }),
		},
		"a list that is empty": {
			among: group + "it is listed", patience: 0.3, fails: []string{" with its labels until it is deleted"},
			wraps: changingSnapshots(func(k *keeping, _ *origins) {
				k.listSnapshots = func([]sdk.Snapshot) []sdk.Snapshot { return nil }
			}),
		},
		"nothing is deleted": {
			among: group + "(it is listed|one that is not there)", patience: 0.3,
			fails: []string{group + "it is listed with its labels until it is deleted", group + "one that is not there makes no instance"},
			wraps: changingSnapshots(func(k *keeping, _ *origins) {
				k.deleteSnapshot = func(context.Context, string) error { return nil }
			}),
		},
		"each request makes another": {
			among: group + "one key", fails: []string{" is one snapshot"}, wraps: askingToKeep(func(r *sdk.SnapshotRequest) { r.IdempotencyKey += time.Now().String() }),
		},
		"all requests are one": {
			among: group + "one key", fails: []string{" is one snapshot"}, wraps: askingToKeep(func(r *sdk.SnapshotRequest) { r.IdempotencyKey = "one" }),
		},
		"the variables of a copy are lost": {
			among: group + "a copy has the variables", fails: []string{" of the original and its own"},
			wraps: copying(func(k *keeping, _ *origins, ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				req.Env = nil
				return k.Provider.Create(ctx, req)
			}),
		},
		"the same randomness": {
			among: group + "randomness", fails: []string{" is new in each copy"},
			wraps: changingSnapshots(func(k *keeping, _ *origins) {
				k.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
					req.Code = strings.Replace(req.Code, "os.urandom(16)", "bytes(16)", 1)
					return k.Provider.Execute(ctx, req, out)
				}
			}),
		},
		"copies end with the snapshot": {
			among: group + "copies outlive", fails: []string{" the snapshot"},
			wraps: changingSnapshots(func(k *keeping, _ *origins) {
				var made sync.Map
				k.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
					i, err := k.Provider.Create(ctx, req)
					if req.Snapshot != nil {
						made.Store(req.Snapshot.ID, i.ID)
					}
					return i, err
				}
				k.deleteSnapshot = func(ctx context.Context, id string) error {
					if i, ok := made.Load(id); ok {
						_ = k.Destroy(ctx, i.(string))
					}
					return k.Provider.DeleteSnapshot(ctx, id)
				}
			}),
		},
		"a snapshot ends with the process": {
			among: group + "it outlives the process", patience: 0.3, fails: []string{""},
			wraps: changingSnapshots(func(k *keeping, _ *origins) {
				born := time.Now()
				k.listSnapshots = func(list []sdk.Snapshot) []sdk.Snapshot {
					return slices.DeleteFunc(list, func(s sdk.Snapshot) bool { return s.CreatedAt.Before(born) })
				}
			}),
		},
		"deleting nothing is an error": {
			among: group + "to delete", fails: []string{" one that is not there is a success"},
			wraps: changingSnapshots(func(k *keeping, _ *origins) {
				k.deleteSnapshot = func(ctx context.Context, id string) error {
					list, err := k.Provider.ListSnapshots(ctx)
					if !slices.ContainsFunc(list, func(s sdk.Snapshot) bool { return s.ID == id }) {
						err = errors.Join(err, sdk.Errorf(sdk.CodeNotFound, "no such snapshot"))
					}
					return errors.Join(err, k.Provider.DeleteSnapshot(ctx, id))
				}
			}),
		},
		"an error that leaves open whether there is a copy": {
			among: group + "one that is not there", fails: []string{" makes no instance"},
			wraps: copying(func(k *keeping, _ *origins, ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				made, err := k.Provider.Create(ctx, req)
				if e, ok := errors.AsType[*sdk.Error](err); ok {
					e.NoEffect = false
				}
				return made, err
			}),
		},
		"any key opens it": {
			among: group + "another key", fails: []string{" opens nothing"},
			wraps: copying(func(k *keeping, _ *origins, ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				req.Snapshot.Key = []byte(strings.Repeat("k", sdk.SnapshotKeyBytes))
				return k.Provider.Create(ctx, req)
			}),
		},
		"no bound": {
			among: group + "one above", fails: []string{" its bound is refused and leaves nothing"}, wraps: askingToKeep(func(r *sdk.SnapshotRequest) { r.MaxBytes = 0 }),
		},
		"a refusal that leaves something": {
			among: group + "one above", fails: []string{" its bound is refused and leaves nothing"},
			wraps: changingSnapshots(func(k *keeping, _ *origins) {
				before := k.snapshot
				k.snapshot = func(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
					bound := req.MaxBytes
					req.MaxBytes = 0
					made, err := before(ctx, req)
					if bound > 0 && made.Bytes > bound {
						return sdk.Snapshot{}, sdk.Errorf(sdk.CodeQuotaExceeded, "too large")
					}
					return made, err
				}
			}),
		},
		"unknown instances have snapshots": {
			among: group + "unknown", fails: []string{" instances are not found"},
			wraps: changingSnapshots(func(k *keeping, _ *origins) {
				before := k.snapshot
				k.snapshot = func(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
					made, err := before(ctx, req)
					return made, forgiving(err, sdk.CodeNotFound)
				}
			}),
		},
		"all brokers are one": {
			among: group + "those of another", fails: []string{" broker are not listed"},
			wraps: changingSnapshots(func(k *keeping, _ *origins) {
				before := k.snapshot
				k.snapshot = func(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
					made, err := before(ctx, req)
					everybodys.Store(made.ID, made)
					return made, err
				}
				k.listSnapshots = func([]sdk.Snapshot) (list []sdk.Snapshot) {
					everybodys.Range(func(_, s any) bool {
						list = append(list, s.(sdk.Snapshot))
						return true
					})
					return list
				}
			}),
		},
		"a paused instance is no conflict": {
			among: group + "an instance that is paused", fails: []string{" is a conflict, or kept"},
			wraps: changingSnapshots(func(k *keeping, _ *origins) {
				before := k.snapshot
				k.snapshot = func(ctx context.Context, req sdk.SnapshotRequest) (sdk.Snapshot, error) {
					made, err := before(ctx, req)
					if sdk.CodeOf(err) == sdk.CodeConflict {
						err = sdk.Errorf(sdk.CodeInternal, "it is paused")
					}
					return made, err
				}
			}),
		},
	})
}

// everybodys are the snapshots of all processes of one mutation.
var everybodys sync.Map
