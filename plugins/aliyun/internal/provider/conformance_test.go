package provider_test

import (
	"context"
	"flag"
	"regexp"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/aliyunfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

func TestMain(m *testing.M) {
	// They wait more than they compute. -parallel says otherwise.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	flag.Parse()
	if err := aliyunfake.Trust(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// start starts a service whose sandboxes can run code. Where there is no bubblewrap the
// test is skipped; in CI that is a failure.
func start(t *testing.T) *aliyunfake.Cloud {
	t.Helper()
	return startWith(t, aliyunfake.Options{})
}

func startWith(t *testing.T, options aliyunfake.Options) *aliyunfake.Cloud {
	t.Helper()
	binaries.Needs(t, "bwrap", "bubblewrap")
	cloud := aliyunfake.StartWith(options)
	t.Cleanup(cloud.Close)
	return cloud
}

func given(cloud *aliyunfake.Cloud) map[string]any {
	return map[string]any{
		"access_key_id": cloud.Keys.AccessKeyID, "access_key_secret": cloud.Keys.AccessKeySecret, "account_id": "1234567890123456",
		"control_endpoint": cloud.URL(), "data_endpoint": cloud.URL(),
	}
}

// Cases that mostly wait run beside the others, each group on a service of its own. The gate leaves
// out the groups that the kit for remote sandboxes answers, which it runs with E2B, and half of the
// others, which it runs with Daytona.
func TestConformance(t *testing.T) {
	t.Parallel()
	root := aliyunfake.Options{}
	if testing.Short() {
		kit := regexp.MustCompile("^(files|file_search|file_watch|file_mode|commands|contexts|artifacts|archives|streams|deadlines|arguments|interrupt|variables)/|/(javascript|bash)/")
		conforms(t, root, providertest.WithSkip(kit, tier.Reason), providertest.WithShare(0, 2))
		return
	}
	waiting := regexp.MustCompile("^(deadlines|interrupt|backend|streams)/")
	programs := regexp.MustCompile("^(contexts|commands)/")
	for name, which := range map[string][]providertest.Option{
		"waiting":  {providertest.WithOnly(waiting)},
		"programs": {providertest.WithOnly(programs)},
		"others":   {providertest.WithSkip(waiting, "it runs beside"), providertest.WithSkip(programs, "it runs beside")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conforms(t, root, which...)
		})
	}
}

// Commands of the service may be those of an ordinary user. What touches directories is
// what could differ then, and most where there is no sudo.
func TestConformanceAsAnOrdinaryUser(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	const touching = "^(files|file_search|file_mode|archives|artifacts|execute/python"
	t.Run("with sudo", func(t *testing.T) {
		t.Parallel()
		conforms(t, aliyunfake.Options{User: true, Sudo: true}, providertest.WithOnly(regexp.MustCompile(touching+")/")))
	})
	// The interface has /workspace then, and code has not.
	itself := regexp.MustCompile(`^(execute/python/code starts in|commands/it starts in|files/a link that stays in its place)`)
	t.Run("without", func(t *testing.T) {
		t.Parallel()
		conforms(t, aliyunfake.Options{User: true}, providertest.WithOnly(regexp.MustCompile(touching+"|commands|contexts/python)/")), providertest.WithSkip(itself, "code names /workspace itself"))
	})
}

// What JavaScript contexts cannot keep to is refused, which the suite takes for what it is.
func TestConformanceWhereOutputComesLate(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	conforms(t, aliyunfake.Options{Notebook: true}, providertest.WithOnly(regexp.MustCompile("^contexts/javascript/")))
}

func conforms(t *testing.T, options aliyunfake.Options, which ...providertest.Option) {
	t.Helper()
	cloud := startWith(t, options)
	cloud.PageSize = 3
	// What ends code is the same for all languages; the suite with an account runs all.
	once := regexp.MustCompile("^(deadlines|streams)/(javascript|bash)/")
	providertest.Run(t, provider.New, append([]providertest.Option{
		providertest.WithPatience(3), providertest.WithSkip(once, "it runs in Python"),
		providertest.WithSettings(given(cloud)),
		providertest.WithBreakage(func(context.Context) (func(context.Context) error, error) {
			cloud.Break(true)
			return func(context.Context) error { cloud.Break(false); return nil }, nil
		}),
	}, which...)...)
}
