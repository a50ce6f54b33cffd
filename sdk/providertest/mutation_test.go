package providertest_test

import (
	"context"
	"hash/fnv"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest/internal/local"
)

// broken is the provider of the tests with some of its calls changed. What is nil
// is as it was.
type broken struct {
	*local.Provider
	describe  func(sdk.Description) sdk.Description
	configure func(sdk.ConfigureRequest) error
	health    func(sdk.Health) (sdk.Health, error)
	create    func(context.Context, sdk.CreateRequest) (sdk.Instance, error)
	execute   func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error)
	destroy   func(context.Context, string) error
	list      func([]sdk.Instance) []sdk.Instance
	close     func(context.Context) error
}

func (b *broken) Describe() sdk.Description {
	if b.describe != nil {
		return b.describe(b.Provider.Describe())
	}
	return b.Provider.Describe()
}

func (b *broken) Configure(ctx context.Context, req sdk.ConfigureRequest) error {
	if b.configure != nil {
		if err := b.configure(req); err != nil {
			return err
		}
	}
	return b.Provider.Configure(ctx, req)
}

func (b *broken) Health(ctx context.Context) (sdk.Health, error) {
	health, err := b.Provider.Health(ctx)
	if b.health != nil && err == nil {
		return b.health(health)
	}
	return health, err
}

func (b *broken) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	if b.create != nil {
		return b.create(ctx, req)
	}
	return b.Provider.Create(ctx, req)
}

func (b *broken) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	if b.execute != nil {
		return b.execute(ctx, req, out)
	}
	return b.Provider.Execute(ctx, req, out)
}

func (b *broken) Destroy(ctx context.Context, id string) error {
	if b.destroy != nil {
		return b.destroy(ctx, id)
	}
	return b.Provider.Destroy(ctx, id)
}

func (b *broken) List(ctx context.Context) ([]sdk.Instance, error) {
	list, err := b.Provider.List(ctx)
	if b.list != nil {
		list = b.list(list)
	}
	return list, err
}

func (b *broken) Close(ctx context.Context) error {
	if b.close != nil {
		return b.close(ctx)
	}
	return b.Provider.Close(ctx)
}

// mutation is a provider that breaks one promise.
type mutation struct {
	// among selects the cases that run, by the beginning of their names.
	among string
	// fails are those that must fail, without what among says; all others must
	// not.
	fails []string
	// breaks changes the provider.
	breaks func(*broken)
	// wraps makes another provider of it, for calls that broken does not have.
	wraps func(*local.Provider) sdk.Provider
	// patience, where it is not that of all.
	patience float64
}

func (m mutation) factory(logger hclog.Logger) sdk.Provider {
	provider := local.New(logger).(*local.Provider)
	if m.wraps != nil {
		return m.wraps(provider)
	}
	b := &broken{Provider: provider}
	m.breaks(b)
	return b
}

// isSample reports whether a mutation is among the sixth that runs with -short. The name decides,
// so that a mutation that fails fails again.
func isSample(name string) bool {
	sum := fnv.New32a()
	_, _ = io.WriteString(sum, name)
	return sum.Sum32()%6 == 0
}

// checkMutations runs each mutation, or a sixth of them with -short, and compares what fails.
func checkMutations(t *testing.T, mutations map[string]mutation) {
	t.Helper()
	t.Parallel()
	for name, m := range mutations {
		if testing.Short() && !isSample(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := slices.Sorted(slices.Values(m.fails))
			var failed []string
			var report providertest.Report
			// Some of it is seen in a moment only, in which a machine that does much else
			// may do nothing of it. What is never seen is not seen in three tries either.
			for range 3 {
				failed, report = m.verify(t)
				if slices.Equal(failed, want) {
					return
				}
			}
			for _, c := range report.Cases {
				t.Logf("%s %s: %s", c.Status, c.Case, c.Reason)
			}
			assert.DeepEqual(t, failed, want)
		})
	}
}

// verify runs the suite against the mutation, and returns which cases failed.
func (m mutation) verify(t *testing.T) (failed []string, report providertest.Report) {
	t.Helper()
	options := append(newWorld(t).options(), providertest.WithOnly(regexp.MustCompile("^"+m.among)))
	if m.patience > 0 {
		options = append(options, providertest.WithPatience(m.patience))
	}
	report = providertest.Verify(t.Context(), providertest.InProcess(m.factory), options...)
	for _, c := range report.Cases {
		if c.Status == providertest.Failed {
			failed = append(failed, strings.TrimPrefix(c.String(), m.among))
		}
	}
	slices.Sort(failed)
	return failed, report
}
