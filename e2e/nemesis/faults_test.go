package nemesis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/nemesis/link"
)

// fault is one kind of harm.
type fault struct {
	name string
	// weight is how often it is drawn, beside others.
	weight int
	// least and most are how long it lasts.
	least, most time.Duration
	// begin does harm, and end undoes it.
	begin, end func(f *fleet, b *broker)
}

const (
	// brief harms are over before a lease is, and long ones last until the broker counts as dead.
	briefLeast, briefMost = 100 * time.Millisecond, 3 * time.Second
	longLeast, longMost   = 6 * time.Second, 13 * time.Second
)

func cutDatabase(how link.Cut) func(*fleet, *broker) {
	return func(_ *fleet, b *broker) { b.database.Cut(how) }
}

func cutPeers(how link.Cut) func(*fleet, *broker) {
	return func(_ *fleet, b *broker) { b.peers.Cut(how) }
}

// apart cuts a broker off from one peer, in one direction, and the other direction too where
// both is given.
func apart(how link.Cut, both bool) func(*fleet, *broker) {
	return func(f *fleet, b *broker) {
		other := f.after(b)
		b.peers.CutFrom(other.name, how)
		if both {
			other.peers.CutFrom(b.name, how)
		}
	}
}

// after is the broker behind another one.
func (f *fleet) after(b *broker) *broker {
	for n, one := range f.brokers {
		if one == b {
			return f.brokers[(n+1)%len(f.brokers)]
		}
	}
	return b
}

func nothing(*fleet, *broker) {}

// ofBrokers are the faults of one broker.
var ofBrokers = []fault{
	{"kill -9", 16, 0, briefMost / 2, func(_ *fleet, b *broker) { b.kill() }, func(_ *fleet, b *broker) { b.up() }},
	{"kill -9, and down for long", 4, longLeast, longMost, func(_ *fleet, b *broker) { b.kill() }, func(_ *fleet, b *broker) { b.up() }},
	{"kill -9 of the plugin", 4, 0, 0, func(_ *fleet, b *broker) { b.killPlugin() }, nothing},
	{"SIGSTOP", 8, briefLeast, briefMost, func(_ *fleet, b *broker) { b.signal(syscall.SIGSTOP) }, func(_ *fleet, b *broker) { b.signal(syscall.SIGCONT) }},
	{"SIGSTOP for longer than the lease", 6, longLeast, longMost, func(_ *fleet, b *broker) { b.signal(syscall.SIGSTOP) }, func(_ *fleet, b *broker) { b.signal(syscall.SIGCONT) }},
	{"no packets to the database", 8, briefLeast, briefMost, cutDatabase(link.Stalled), cutDatabase(link.Open)},
	{"no packets to the database for longer than the lease", 5, longLeast, longMost, cutDatabase(link.Stalled), cutDatabase(link.Open)},
	{"no answers from the database", 8, briefLeast, briefMost, cutDatabase(link.Mute), cutDatabase(link.Open)},
	{"no answers from the database for longer than the lease", 3, longLeast, longMost, cutDatabase(link.Mute), cutDatabase(link.Open)},
	{"connections to the database are reset", 8, 0, briefMost, cutDatabase(link.Reset), cutDatabase(link.Open)},
	{"no packets from peers", 5, briefLeast, 2 * briefMost, cutPeers(link.Stalled), cutPeers(link.Open)},
	{"no answers to peers", 5, briefLeast, 2 * briefMost, cutPeers(link.Mute), cutPeers(link.Open)},
	{"connections of peers are reset", 5, 0, briefMost, cutPeers(link.Reset), cutPeers(link.Open)},
	{"no packets between two", 5, briefLeast, 2 * briefMost, apart(link.Stalled, true), apart(link.Open, true)},
	{"no packets from one to another", 5, briefLeast, 2 * briefMost, apart(link.Stalled, false), apart(link.Open, false)},
	{"connections between two are reset", 5, 0, briefMost, apart(link.Reset, true), apart(link.Open, true)},
}

// ofDatabase are the faults of the database. The broker is nil.
var ofDatabase = []fault{
	{"the database: kill -9", 5, 0, briefMost / 2, func(f *fleet, _ *broker) { f.primary.Kill() }, func(f *fleet, _ *broker) { f.primary.Up() }},
	{"the database: restart", 3, 0, briefMost / 2, func(f *fleet, _ *broker) { f.primary.Down() }, func(f *fleet, _ *broker) { f.primary.Up() }},
	{"the database: SIGSTOP", 4, briefLeast, briefMost, func(f *fleet, _ *broker) { f.primary.Signal(syscall.SIGSTOP) }, func(f *fleet, _ *broker) { f.primary.Signal(syscall.SIGCONT) }},
	{"the database: SIGSTOP for longer than the lease", 1, longLeast, longMost, func(f *fleet, _ *broker) { f.primary.Signal(syscall.SIGSTOP) }, func(f *fleet, _ *broker) { f.primary.Signal(syscall.SIGCONT) }},
	{"the database: slow", 4, 0, 0, slow, nothing},
	{"the database: no standby", 2, briefLeast, briefMost, func(f *fleet, _ *broker) { f.standby.Kill() }, func(f *fleet, _ *broker) { f.standby.Up() }},
	{"the database: fail-over", 4, 0, 0, func(f *fleet, _ *broker) { f.failOver(true) }, nothing},
	{"the database: fail-over from one that lives", 3, 0, 0, func(f *fleet, _ *broker) { f.failOver(false) }, nothing},
}

// slow has the database stand still most of the time, for a while.
func slow(f *fleet, _ *broker) {
	for range 20 {
		f.primary.Signal(syscall.SIGSTOP)
		pause(context.Background(), 90*time.Millisecond)
		f.primary.Signal(syscall.SIGCONT)
		pause(context.Background(), 10*time.Millisecond)
	}
}

// failOver makes of the standby the server that the brokers use, and starts a new standby.
func (f *fleet) failOver(dead bool) {
	f.t.Helper()
	old := f.primary
	if dead {
		old.Kill()
	}
	f.standby.Promote()
	f.primary = f.standby
	for _, b := range f.brokers {
		b.database.Lead(f.primary.Address())
	}
	old.Kill()
	f.standby = f.primary.Standby()
	f.servers = append(f.servers, f.standby)
}

// draw draws one of the faults.
func draw(random *rand.Rand, of []fault) fault {
	total := 0
	for _, one := range of {
		total += one.weight
	}
	n := random.IntN(total)
	for _, one := range of {
		if n -= one.weight; n < 0 {
			return one
		}
	}
	return of[0]
}

// nemesis does harm to a fleet.
type nemesis struct {
	fleet *fleet
	// left are the faults to come.
	left atomic.Int64
	mu   sync.Mutex
	done map[string]int
	// lock has only one at a time do harm, in a calm round.
	lock sync.Mutex
	calm bool
}

// rest is between two faults of one thread.
const restLeast, restMost = 300 * time.Millisecond, 2 * time.Second

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// rage does a number of faults, on all brokers and on the database at once unless the round is
// calm, and returns when all is undone.
func (n *nemesis) rage(seed uint64, round, faults int, calm bool) {
	n.left.Store(int64(faults))
	n.calm = calm
	var group sync.WaitGroup
	for i, b := range n.fleet.brokers {
		random := rand.New(rand.NewPCG(seed, uint64(round*100+i)))
		group.Go(func() {
			for n.next(random) {
				n.harm(random, draw(random, ofBrokers), b)
			}
		})
	}
	// The database is this goroutine's: what harms it may end the test.
	random := rand.New(rand.NewPCG(seed, uint64(round*100+99)))
	for n.next(random) {
		n.harm(random, draw(random, ofDatabase), nil)
	}
	group.Wait()
}

func (n *nemesis) next(random *rand.Rand) bool {
	pause(context.Background(), between(random, restLeast, restMost))
	return n.left.Add(-1) >= 0
}

// harm does one fault. One of the database is a harm to all brokers.
func (n *nemesis) harm(random *rand.Rand, what fault, b *broker) {
	if n.calm {
		n.lock.Lock()
		defer n.lock.Unlock()
	}
	suffer := n.fleet.brokers
	if b != nil {
		suffer = []*broker{b}
	}
	for _, one := range suffer {
		one.health.begin()
	}
	n.log("begin", what, b)
	what.begin(n.fleet, b)
	pause(context.Background(), between(random, what.least, what.most))
	what.end(n.fleet, b)
	n.log("end", what, b)
	for _, one := range suffer {
		one.health.end()
	}
	for n.calm && slices.ContainsFunc(suffer, (*broker).ill) {
		pause(context.Background(), lookEvery)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.done[what.name]++
}

// log writes down when a fault begins and ends.
func (n *nemesis) log(moment string, what fault, b *broker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	whose := ""
	if b != nil {
		whose = b.name
	}
	file, err := os.OpenFile(filepath.Join(n.fleet.dir, "faults"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if assert.Check(n.fleet.t, err) {
		fmt.Fprintf(file, "%s %s %s: %s\n", time.Now().Format("15:04:05.000"), whose, what.name, moment)
		assert.Check(n.fleet.t, file.Close())
	}
}

// count says how many faults there were.
func (n *nemesis) count() (total int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, times := range n.done {
		total += times
	}
	return total
}

func (n *nemesis) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	text := ""
	for _, of := range [][]fault{ofBrokers, ofDatabase} {
		for _, one := range of {
			text += fmt.Sprintf("%4d %s\n", n.done[one.name], one.name)
		}
	}
	return text
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
