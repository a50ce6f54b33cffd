package quota_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestEachLimitIsRefusedByItsName(t *testing.T) {
	second := time.Second
	for name, c := range map[string]struct {
		limits quota.Limits
		// before is admitted so often, demand is refused then.
		before  int
		demand  quota.Demand
		limit   quota.Limit
		retry   time.Duration
		message string
	}{
		"instances":            {quota.Limits{Instances: 2}, 2, instanceOn("local"), quota.MaxInstances, second, "the quota max_instances = 2 does not allow more: 2 in use"},
		"executions at a time": {quota.Limits{Concurrent: 3}, 3, execution(second), quota.MaxConcurrent, second, "the quota max_concurrent = 3 does not allow more: 3 in use"},
		"executions of a day":  {quota.Limits{ExecutionsPerDay: 2}, 2, execution(second), quota.ExecutionsPerDay, 12 * time.Hour, "the quota executions_per_day = 2 does not allow more: 2 in use"},
		"time of a day, which those in progress may give back": {
			quota.Limits{ExecutionTimePerDay: 50 * second},
			2, execution(20 * second), quota.ExecutionTimePerDay, second,
			"the quota execution_seconds_per_day = 50 does not allow more: 40 in use, and this could take 20",
		},
		"more time than a day has": {
			quota.Limits{ExecutionTimePerDay: 50 * second},
			0, execution(time.Minute), quota.ExecutionTimePerDay, 0,
			"this takes 60 of the quota execution_seconds_per_day, which is 50 in all",
		},
		"memory":           {quota.Limits{Size: quota.Size{MemoryMB: 256}}, 0, instanceOn("local"), quota.MaxMemoryMB, 0, "this takes 512 of the quota max_memory_mb, which is 256 in all"},
		"processors":       {quota.Limits{Size: quota.Size{CPUs: 0.5}}, 0, instanceOn("local"), quota.MaxCPUs, 0, "this takes 1 of the quota max_cpus, which is 0.5 in all"},
		"money of a day":   {quota.Limits{MoneyPerDay: quota.MoneyOf(1.5)}, 2, instanceOn("cloud"), quota.MoneyPerDay, 12 * time.Hour, "the quota money_per_day = 1.5 does not allow more: 1.2 in use, and this could take 0.6"},
		"money of a month": {quota.Limits{MoneyPerMonth: quota.MoneyOf(1)}, 1, instanceOn("cloud"), quota.MoneyPerMonth, 36 * time.Hour, "the quota money_per_month = 1 does not allow more: 0.6 in use, and this could take 0.6"},
	} {
		t.Run(name, func(t *testing.T) {
			k := keeper(t, c.limits, at(noon()))
			for range c.before {
				admit(t, k, c.demand)
			}
			_, err := k.Admit(context.Background(), c.demand)
			var refusal *quota.Refusal
			assert.Assert(t, errors.As(err, &refusal), "%v", err)
			assert.Equal(t, refusal.Limit, c.limit)
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded)
			var coded *sdk.Error
			assert.Assert(t, errors.As(err, &coded))
			assert.Equal(t, coded.RetryAfter, c.retry)
			assert.Equal(t, coded.Message, c.message)
			assert.Equal(t, k.Usage("acme").Refused[c.limit], int64(1))
			// Others have nothing to do with it.
			other := c.demand
			other.Tenant = "umbrella"
			admit(t, k, other)
		})
	}
}

func TestARequestThatIsRefusedTakesNothing(t *testing.T) {
	k := keeper(t, quota.Limits{Instances: 1, Concurrent: 5, ExecutionsPerDay: 5})
	admit(t, k, instanceOn("local"))
	both := instanceOn("local")
	both.Execution, both.Timeout = true, time.Second
	_, err := k.Admit(context.Background(), both)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded)
	assert.Equal(t, used(t, k, quota.MaxConcurrent), 0.0)
	assert.Equal(t, used(t, k, quota.ExecutionsPerDay), 0.0)
	assert.Equal(t, used(t, k, quota.MaxInstances), 1.0)
}

func TestAnExecutionIsSettledAtWhatItTook(t *testing.T) {
	c := noon()
	k := keeper(t, quota.Limits{ExecutionTimePerDay: time.Minute}, at(c))

	started := admit(t, k, execution(30*time.Second)).Execution
	started.Start()
	c.forward(2 * time.Second)
	assert.Equal(t, used(t, k, quota.ExecutionTimePerDay), 30.0)
	started.Release()
	started.Release()
	assert.Equal(t, used(t, k, quota.ExecutionTimePerDay), 2.0)
	assert.Equal(t, used(t, k, quota.ExecutionsPerDay), 1.0)

	never := admit(t, k, execution(30*time.Second))
	never.Release()
	assert.Equal(t, used(t, k, quota.ExecutionTimePerDay), 2.0)
	assert.Equal(t, used(t, k, quota.ExecutionsPerDay), 1.0, "what did not run counts for nothing")

	late := admit(t, k, execution(10*time.Second)).Execution
	late.Start()
	c.forward(15 * time.Second)
	late.Release()
	assert.Equal(t, used(t, k, quota.ExecutionTimePerDay), 12.0, "at most what was reserved")
	assert.Equal(t, used(t, k, quota.MaxConcurrent), 0.0)
}

func TestADayBeginsAtMidnightOfUTC(t *testing.T) {
	c := noon()
	k := keeper(t, quota.Limits{ExecutionsPerDay: 1, ExecutionTimePerDay: time.Minute, MoneyPerMonth: quota.MoneyOf(10)}, at(c))
	yesterday := admit(t, k, execution(20*time.Second)).Execution
	yesterday.Start()
	life := admit(t, k, instanceOn("cloud")).Instance
	c.forward(12*time.Hour - time.Second)
	_, err := k.Admit(context.Background(), execution(time.Second))
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded)
	c.forward(time.Second)
	today := admit(t, k, execution(20*time.Second)).Execution
	assert.Equal(t, used(t, k, quota.ExecutionTimePerDay), 20.0)
	yesterday.Release()
	assert.Equal(t, used(t, k, quota.ExecutionTimePerDay), 20.0, "yesterday's time is not today's")
	today.Release()
	assert.Equal(t, used(t, k, quota.ExecutionTimePerDay), 0.0)
	assert.Equal(t, used(t, k, quota.MoneyPerMonth), 0.6, "the month goes on")
	c.forward(24 * time.Hour)
	assert.Equal(t, used(t, k, quota.MoneyPerMonth), 0.0, "until December")
	c.forward(-24 * time.Hour)
	admit(t, k, execution(time.Second)).Release() // a clock that goes back opens no old day
	assert.Equal(t, used(t, k, quota.ExecutionsPerDay), 0.0)
	life.Release()
}

func TestAnInstancePaysAMinuteAhead(t *testing.T) {
	ctx := context.Background()
	c := noon()
	k := keeper(t, quota.Limits{MoneyPerDay: quota.MoneyOf(1)}, at(c))
	life := admit(t, k, instanceOn("cloud")).Instance
	assert.Equal(t, used(t, k, quota.MoneyPerDay), 0.6)
	assert.Assert(t, life.NextCharge().After(c.Now()))

	c.forward(40 * time.Second)
	assert.Assert(t, !life.NextCharge().After(c.Now()))
	until, err := life.Renew(ctx)
	assert.NilError(t, err)
	assert.Equal(t, until, c.Now().Add(time.Minute))
	assert.Equal(t, used(t, k, quota.MoneyPerDay), 1.0)

	assert.NilError(t, life.Cover(ctx, c.Now().Add(30*time.Second)), "that is paid already")
	err = life.Cover(ctx, c.Now().Add(90*time.Second))
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded)
	c.forward(40 * time.Second)
	until, err = life.Renew(ctx)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded)
	assert.Equal(t, until, c.Now().Add(20*time.Second), "it may live as long as it has paid")

	life.Release()
	assert.Equal(t, used(t, k, quota.MoneyPerDay), 0.8, "80 seconds were lived")

	unmade := admit(t, k, quota.Demand{Tenant: "acme", Instance: true, Provider: "local"}).Instance
	assert.Assert(t, unmade.NextCharge().IsZero(), "this one costs nothing")
	unmade.Cancel()
	k.SetRules(rules(quota.Limits{}))
	unmade = admit(t, k, instanceOn("cloud")).Instance
	c.forward(10 * time.Second)
	unmade.Cancel()
	assert.Equal(t, used(t, k, quota.MoneyPerDay), 0.8, "what never was costs nothing")
	long := admit(t, k, instanceOn("cloud")).Instance
	c.forward(2 * time.Minute)
	long.Release()
	assert.Equal(t, used(t, k, quota.MoneyPerDay), 2.0, "what was lived beyond is charged")
}

func TestRequestsPerSecond(t *testing.T) {
	c := noon()
	k := keeper(t, quota.Limits{RequestsPerSecond: 2}, at(c))
	for want := range 2 {
		remaining, limit, err := k.Request("acme")
		assert.NilError(t, err)
		assert.Equal(t, limit, 2.0)
		assert.Equal(t, remaining, float64(1-want))
	}
	_, _, err := k.Request("acme")
	var coded *sdk.Error
	assert.Assert(t, errors.As(err, &coded))
	assert.Equal(t, coded.RetryAfter, 500*time.Millisecond)
	assert.Error(t, err, "SB008: more requests than the quota requests_per_second = 2 allows")
	c.forward(500 * time.Millisecond)
	_, _, err = k.Request("acme")
	assert.NilError(t, err)
	_, limit, err := k.Request("umbrella")
	assert.NilError(t, err)
	assert.Equal(t, limit, 0.0)

	k.SetRules(rules(quota.Limits{RequestsPerSecond: 0.5}))
	_, _, err = k.Request("acme")
	assert.Assert(t, errors.As(err, &coded))
	assert.Equal(t, coded.RetryAfter, 2*time.Second)
	k.SetRules(rules(quota.Limits{}))
	_, _, err = k.Request("acme")
	assert.NilError(t, err)
}

func TestLimitsChangeWhileTheyAreInUse(t *testing.T) {
	k := keeper(t, quota.Limits{Instances: 3, ExecutionsPerDay: 10})
	var lives []*quota.Instance
	for range 3 {
		lives = append(lives, admit(t, k, instanceOn("local")).Instance)
		admit(t, k, execution(time.Second)).Execution.Start()
	}
	k.SetRules(rules(quota.Limits{Instances: 1, ExecutionsPerDay: 3}))
	for i, life := range lives {
		_, err := k.Admit(context.Background(), instanceOn("local"))
		assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded, "%d", i)
		life.Release()
	}
	admit(t, k, instanceOn("local"))
	_, err := k.Admit(context.Background(), execution(time.Second))
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded, "the count was kept")
	k.SetRules(rules(quota.Limits{Instances: 2, ExecutionsPerDay: 4}))
	admit(t, k, execution(time.Second))
	admit(t, k, instanceOn("local"))
}

func TestWhatIsThereAlreadyIsAdoptedWhateverTheLimits(t *testing.T) {
	k := keeper(t, quota.Limits{Instances: 1, MoneyPerDay: quota.MoneyOf(0.1)}, at(noon()))
	life := k.Adopt("acme", "cloud", false)
	k.Adopt("acme", "cloud", false)
	assert.Equal(t, used(t, k, quota.MaxInstances), 2.0)
	assert.Equal(t, used(t, k, quota.MoneyPerDay), 1.2)
	life.Release()
	assert.Equal(t, used(t, k, quota.MaxInstances), 1.0)
	(*quota.Instance)(nil).Release()
	quota.Grant{}.Release()
}

func TestWhatTheLivesOfInstancesHaveCostOnlyGrows(t *testing.T) {
	c := noon()
	k := keeper(t, quota.Limits{}, at(c))
	lived, unmade := admit(t, k, instanceOn("cloud")).Instance, admit(t, k, instanceOn("cloud")).Instance
	assert.Equal(t, k.Spent()["cloud"], 0.0, "what is paid ahead is not lived yet")
	c.forward(30 * time.Second)
	assert.Equal(t, k.Spent()["cloud"], 0.6)
	unmade.Cancel()
	assert.Equal(t, k.Totals().Cost.Amount(), 0.3)
	assert.Equal(t, k.Spent()["cloud"], 0.6, "it never falls")
	c.forward(20 * time.Second)
	assert.Equal(t, k.Spent()["cloud"], 0.6)
	c.forward(20 * time.Second)
	assert.Equal(t, k.Spent()["cloud"], 0.7)
	lived.Release()
	lived.Release()
	c.forward(time.Second)
	assert.Equal(t, k.Spent()["cloud"], 0.7)
	admit(t, k, instanceOn("local")).Instance.Release()
	assert.Equal(t, k.Spent()["local"], 0.0)
}

func TestWhoWaitsIsCounted(t *testing.T) {
	k := keeper(t, quota.Limits{Concurrent: 1}, at(noon()))
	running := admit(t, k, execution(time.Second))
	assert.Equal(t, k.Totals().Waiting, 0)
	done := make(chan error)
	for range 2 {
		go func() {
			d := execution(time.Second)
			d.Wait = time.Hour
			g, err := k.Admit(t.Context(), d)
			g.Release()
			done <- err
		}()
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if n := k.Totals().Waiting; n != 2 {
			return poll.Continue("%d wait", n)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	running.Release()
	assert.NilError(t, <-done)
	assert.NilError(t, <-done)
	assert.Equal(t, k.Totals().Waiting, 0)
}
