package generation

import (
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
)

type anything interface{ Instances }

// left is what is on revisions, and what was done about it.
type left struct {
	anything
	on, used      map[instance.Provider]int
	retired, lost []instance.Provider
}

func (l *left) Instances(p instance.Provider) int { return l.on[p] }
func (l *left) InUse(p instance.Provider) int     { return l.used[p] }
func (l *left) Lose(p instance.Provider)          { l.lost = append(l.lost, p) }

func (l *left) Retire(p instance.Provider) <-chan struct{} {
	l.retired = append(l.retired, p)
	return nil
}

func (l *left) host() *Host {
	return &Host{Catalog: &Catalog{}, Instances: l, Logger: hclog.NewNullLogger()}
}

func TestWhatADeadPluginHadGoesToItsSuccessor(t *testing.T) {
	old, successor := &Revision{}, &Revision{}
	l := &left{on: map[instance.Provider]int{old: 2}}
	h := l.host()
	assert.Assert(t, h.handOver(old, successor))
	assert.DeepEqual(t, len(l.lost), 0)
	assert.Assert(t, len(l.retired) == 1 && l.retired[0] == old, "it gets no new ones")
	assert.Assert(t, old.serving() == successor)
}

// Who was removed from the configuration loses what it had, and what those before it had
// left to it.
func TestWhatNobodyCanReachIsGivenUp(t *testing.T) {
	first, last := &Revision{}, &Revision{}
	l := &left{on: map[instance.Provider]int{first: 1, last: 1}}
	h := l.host()
	assert.Assert(t, h.handOver(first, last))
	assert.Assert(t, !h.handOver(last, nil))
	assert.Equal(t, len(l.lost), 2)
	assert.Assert(t, l.lost[0] == last && l.lost[1] == first)

	late := &Revision{}
	assert.Assert(t, !h.handOver(late, last), "nobody comes after the last one")
	assert.Assert(t, l.lost[2] == late)
}

// A plugin that drains goes on for what it has, and where it has no successor for what was
// left to it as well.
func TestWhoseInstancesAPluginServesToTheirEnd(t *testing.T) {
	before, old, successor := &Revision{}, &Revision{}, &Revision{}
	for name, c := range map[string]struct {
		on, used  map[instance.Provider]int
		successor *Revision
		remaining *Revision
		inUse     bool
	}{
		"nothing is left":                         {},
		"its own, which nobody uses":              {on: map[instance.Provider]int{old: 1}, remaining: old},
		"its own, in use":                         {on: map[instance.Provider]int{old: 1}, used: map[instance.Provider]int{old: 1}, remaining: old, inUse: true},
		"what was left to it":                     {on: map[instance.Provider]int{before: 1}, used: map[instance.Provider]int{before: 1}, remaining: before, inUse: true},
		"what was left to it is its successor's":  {on: map[instance.Provider]int{before: 1}, used: map[instance.Provider]int{before: 1}, successor: successor},
		"its own, in use, and it has a successor": {on: map[instance.Provider]int{old: 1}, used: map[instance.Provider]int{old: 1}, successor: successor, remaining: old, inUse: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := &left{on: map[instance.Provider]int{before: 1}}
			h := l.host()
			assert.Assert(t, h.handOver(before, old))
			l.on, l.used = c.on, c.used
			assert.Assert(t, h.remaining(old, c.successor) == c.remaining)
			assert.Equal(t, h.inUse(old, c.successor), c.inUse)
		})
	}
}
