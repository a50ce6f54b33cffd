package chaos_test

import (
	"net/http"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// at is a moment of the histories below.
func at(second int) time.Time { return time.Unix(int64(second), 0) }

func instanceOf(tenant, id string) cloud.Instance {
	return cloud.Instance{ID: "cloud-" + id, Labels: map[string]string{
		sdk.LabelTenant: tenant, sdk.LabelSession: "s", sdk.LabelInstance: id,
	}}
}

func created(second int, i cloud.Instance) cloud.Effect {
	return cloud.Effect{At: at(second), Kind: cloud.Created, Instance: i}
}

func executed(second int, i cloud.Instance) cloud.Effect {
	return cloud.Effect{At: at(second), Kind: cloud.Executed, Instance: i, Execution: "e", Program: cloud.Program{Token: "x"}}
}

// TestTheCheckerSeesWhatIsWrong gives it histories with one fault each: a check that
// finds nothing in a broken history would find nothing in the broker.
func TestTheCheckerSeesWhatIsWrong(t *testing.T) {
	a := instanceOf("red", "a")
	told := event{Operation: opCreate, Tenant: "red", Told: idOf(a), Status: http.StatusCreated, Key: "k"}
	gone := event{Operation: opDestroy, Tenant: "red", Instance: idOf(a), Status: http.StatusNoContent}
	begin := auditLine{Event: "begin", Operation: "create_instance", Instance: idOf(a), Timestamp: at(1)}
	bare := auditLine{Event: "begin", Operation: "execute_code", Instance: idOf(a), Execution: executed(3, a).Execution, Timestamp: at(1)}
	covering := bare
	covering.Covers = []string{"create_instance", "execute_code", "destroy_instance"}
	many := func(n int, effect func(i int) cloud.Effect) (all []cloud.Effect) {
		for i := range n {
			all = append(all, effect(i))
		}
		return all
	}
	for name, test := range map[string]struct {
		find func(*findings)
		want string // none if empty
	}{
		"an acknowledged instance is there": {func(f *findings) { f.acknowledged([]event{told}, []cloud.Instance{a}) }, ""},
		"an acknowledged instance is not there": {
			func(f *findings) { f.acknowledged([]event{told}, nil) }, "lost: ",
		},
		"it was destroyed":                 {func(f *findings) { f.acknowledged([]event{told, gone}, nil) }, ""},
		"what was destroyed is there":      {func(f *findings) { f.acknowledged([]event{told, gone}, []cloud.Instance{a}) }, "undead: "},
		"an owner is told that it is not":  {func(f *findings) { f.acknowledged([]event{{Operation: opLook, Instance: "i", Status: 404}}, nil) }, "denied: "},
		"a key is answered twice the same": {func(f *findings) { f.keys([]event{told, told}) }, ""},
		"a key is answered with two":       {func(f *findings) { f.keys([]event{told, {Key: "k", Told: "red:s:b", Status: 201}}) }, "doubled: "},
		"a session has another after a refusal": {func(f *findings) {
			f.effects([]event{{Operation: opCreate, Tenant: "red", Session: "s", Began: at(0), Ended: at(2), Status: 503, Code: "SB009"}},
				[]cloud.Effect{created(1, a), created(3, instanceOf("red", "b"))})
		}, ""},
		"a session has another after a refusal of another session": {func(f *findings) {
			f.effects([]event{{Operation: opCreate, Tenant: "red", Session: "t", Began: at(0), Ended: at(2), Status: 503, Code: "SB009"}},
				[]cloud.Effect{created(1, a), created(3, instanceOf("red", "b"))})
		}, "doubled: "},
		"a session has another after an answer that was cut off": {func(f *findings) {
			f.effects([]event{{Operation: opCreate, Tenant: "red", Began: at(0), Ended: at(2), Error: "reset"}},
				[]cloud.Effect{created(1, a), created(3, instanceOf("red", "b"))})
		}, "doubled: "},
		"a session has another after a refusal, and had been told of the first": {func(f *findings) {
			f.effects([]event{told, {Operation: opCreate, Tenant: "red", Session: "s", Began: at(0), Ended: at(2), Status: 503, Code: "SB009"}},
				[]cloud.Effect{created(1, a), created(3, instanceOf("red", "b"))})
		}, "doubled: "},
		"a stranger gets in":       {func(f *findings) { f.tenants([]event{{Operation: opSteal, Status: 200}}) }, "seen: "},
		"a stranger is shown it":   {func(f *findings) { f.tenants([]event{{Operation: opList, Tenant: "blue", List: []string{idOf(a)}}}) }, "seen: "},
		"a stranger is told of it": {func(f *findings) { f.tenants([]event{{Tenant: "blue", Told: idOf(a), Status: 200}}) }, "seen: "},
		"one more is resumed than may run": {func(f *findings) {
			f.quotas(append(many(maxInstances, func(i int) cloud.Effect { return created(i, a) }),
				cloud.Effect{Kind: cloud.Paused, Instance: a}, created(maxInstances, instanceOf("red", "b")), cloud.Effect{Kind: cloud.Resumed, Instance: a}))
		}, "above a limit: "},
		"one is paused for another": {func(f *findings) {
			f.quotas(append(many(maxInstances, func(i int) cloud.Effect { return created(i, a) }),
				cloud.Effect{Kind: cloud.Paused, Instance: a}, created(maxInstances, instanceOf("red", "b"))))
		}, ""},
		"the broker itself counts too many": {func(f *findings) {
			f.counts([]event{{Operation: opUsage, List: []string{"max_instances: 7 of 6"}}}, false)
		}, "above a limit: "},
		"the cloud lists what is gone": {func(f *findings) {
			f.counts([]event{{Operation: opUsage, List: []string{"max_instances: 7 of 6"}}}, true)
		}, ""},
		"it counts too many executions": {func(f *findings) {
			f.counts([]event{{Operation: opUsage, List: []string{"max_concurrent: 7 of 6"}}}, true)
		}, "above a limit: "},
		"a session has two": {
			func(f *findings) {
				f.effects(nil, []cloud.Effect{created(1, a), created(2, instanceOf("red", "b"))})
			}, "doubled: ",
		},
		"a session has one after the other": {
			func(f *findings) {
				f.effects(nil, []cloud.Effect{created(1, a), {Kind: cloud.Gone, Instance: a}, created(2, instanceOf("red", "b"))})
			}, "",
		},
		"a session has one whose end was asked for, and another": {
			func(f *findings) {
				f.effects([]event{{Operation: opDestroy, Instance: idOf(a), Began: at(1)}}, []cloud.Effect{created(0, a), created(2, instanceOf("red", "b"))})
			}, "",
		},
		"a session has two before the end of one was asked for": {
			func(f *findings) {
				f.effects([]event{{Operation: opDestroy, Instance: idOf(a), Began: at(3)}}, []cloud.Effect{created(0, a), created(2, instanceOf("red", "b"))})
			}, "doubled: ",
		},
		"code runs twice": {
			func(f *findings) {
				f.effects([]event{{Tenant: "red", Token: "x"}}, []cloud.Effect{executed(1, a), executed(2, a)})
			}, "doubled: ",
		},
		"what a sandbox is made to run runs in the next one, when the end of the first was asked for": {
			func(f *findings) {
				f.effects([]event{{Operation: opCreate, Tenant: "red", Token: "x"}, {Operation: opDestroy, Instance: idOf(a), Began: at(2)}},
					[]cloud.Effect{executed(1, a), executed(3, instanceOf("red", "b"))})
			}, "",
		},
		"it runs there before that": {
			func(f *findings) {
				f.effects([]event{{Operation: opCreate, Tenant: "red", Token: "x"}, {Operation: opDestroy, Instance: idOf(a), Began: at(4)}},
					[]cloud.Effect{executed(1, a), executed(3, instanceOf("red", "b"))})
			}, "doubled: ",
		},
		"other code runs in the next one": {
			func(f *findings) {
				f.effects([]event{{Operation: opExecute, Tenant: "red", Token: "x"}, {Operation: opDestroy, Instance: idOf(a), Began: at(2)}},
					[]cloud.Effect{executed(1, a), executed(3, instanceOf("red", "b"))})
			}, "doubled: ",
		},
		"code runs at another tenant's": {
			func(f *findings) {
				f.effects([]event{{Tenant: "blue", Token: "x"}}, []cloud.Effect{executed(1, a)})
			}, "mixed up: ",
		},
		"as many instances as allowed": {
			func(f *findings) { f.quotas(many(maxInstances, func(i int) cloud.Effect { return created(i, a) })) }, "",
		},
		"one instance too many": {
			func(f *findings) { f.quotas(many(maxInstances+1, func(i int) cloud.Effect { return created(i, a) })) }, "above a limit: ",
		},
		"one execution too many": {
			func(f *findings) {
				f.concurrent(many(maxConcurrent+1, func(i int) cloud.Effect { return executed(i, a) }))
			}, "above a limit: ",
		},
		"an execution that does not count": {
			func(f *findings) {
				f.executions("red", 0, []cloud.Effect{{At: time.Now(), Kind: cloud.Executed, Instance: a}})
			}, "not counted: ",
		},
		"more executions than a day has": {
			func(f *findings) {
				i := instanceOf(frugal, "a")
				f.executions(frugal, 1000, many(frugalExecutions+1, func(int) cloud.Effect { return executed(1, i) }))
			}, "above a limit: ",
		},
		"an effect with its line":     {func(f *findings) { f.audit([]cloud.Effect{created(2, a)}, []auditLine{begin}) }, ""},
		"an effect without a line":    {func(f *findings) { f.audit([]cloud.Effect{created(2, a)}, nil) }, "unaudited: "},
		"a line that came after":      {func(f *findings) { f.audit([]cloud.Effect{created(0, a)}, []auditLine{begin}) }, "unaudited: "},
		"two effects with one line":   {func(f *findings) { f.audit([]cloud.Effect{created(2, a), created(3, a)}, []auditLine{begin}) }, "unaudited: "},
		"an execution without a line": {func(f *findings) { f.audit([]cloud.Effect{executed(2, a)}, []auditLine{begin}) }, "unaudited: "},
		"three effects with the line that covers them": {func(f *findings) {
			f.audit([]cloud.Effect{created(2, a), executed(3, a), {At: at(4), Kind: cloud.Gone, Instance: a}}, []auditLine{covering})
		}, ""},
		"two creations with a line that covers one": {func(f *findings) {
			f.audit([]cloud.Effect{created(2, a), created(3, a)}, []auditLine{covering})
		}, "unaudited: "},
		"a destruction that the line of an execution does not cover": {func(f *findings) {
			f.audit([]cloud.Effect{{At: at(4), Kind: cloud.Gone, Instance: a}}, []auditLine{bare})
		}, "unaudited: "},
		"a destruction without a line": {func(f *findings) { f.audit([]cloud.Effect{{At: at(2), Kind: cloud.Gone, Instance: a}}, nil) }, "unaudited: "},
		"only the line of the end exists": {func(f *findings) {
			f.audit([]cloud.Effect{created(2, a)}, []auditLine{{Event: "end", Instance: idOf(a)}})
		}, "unaudited: "},
	} {
		t.Run(name, func(t *testing.T) {
			var f findings
			test.find(&f)
			if test.want == "" {
				assert.Check(t, is.Len(f, 0))
				return
			}
			assert.Assert(t, is.Len(f, 1))
			assert.Check(t, is.Contains(f[0], test.want))
		})
	}
}

func TestASeedTellsTheSchedule(t *testing.T) {
	assert.DeepEqual(t, schedule(newRandom(1, 0), 100), schedule(newRandom(1, 0), 100))
	assert.Check(t, schedule(newRandom(1, 0), 1)[0] != schedule(newRandom(2, 0), 1)[0])
}
