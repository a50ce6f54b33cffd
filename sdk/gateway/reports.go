package gateway

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// reports are what nobody has heard yet. It never makes anybody wait.
type reports struct {
	mu      *sync.Mutex
	waiting []told
	tenants map[string]int // how many of them wait, where that is not 0
	lost    int64
	counted time.Time     // when somebody was last told how many are lost
	news    chan struct{} // holds one when there is something
	turn    chan struct{} // of the follower
}

// told is what became of a connection of a tenant.
type told struct {
	tenant     string
	connection sdk.NetworkConnection
}

// lostEvery is how often somebody is told how many are lost: each time is a line in a log.
const lostEvery = time.Minute

func newReports() reports {
	return reports{mu: &sync.Mutex{}, tenants: map[string]int{}, news: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
}

// add keeps what became of a connection. A tenant has no more of the queue than is free: alone
// half of it, and whoever comes always finds room.
func (r *reports) add(tenant string, c sdk.NetworkConnection) {
	r.mu.Lock()
	if r.tenants[tenant] < sdk.MaxNetworkBacklog-len(r.waiting) {
		r.waiting = append(r.waiting, told{tenant, c})
		r.tenants[tenant]++
	} else {
		r.lost++
	}
	r.mu.Unlock()
	r.wake()
}

// lose counts what is not told.
func (r *reports) lose() {
	r.mu.Lock()
	r.lost++
	r.mu.Unlock()
	r.wake()
}

func (r *reports) wake() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// take removes what is next; ok is false if there is nothing. Where something is lost, and it is
// too early to say so, due is how long that has to wait.
func (r *reports) take() (report sdk.NetworkReport, due time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.waiting), sdk.MaxNetworkReport)
	for _, t := range r.waiting[:n] {
		report.Connections = append(report.Connections, t.connection)
		if r.tenants[t.tenant]--; r.tenants[t.tenant] == 0 {
			delete(r.tenants, t.tenant)
		}
	}
	r.waiting = slices.Delete(r.waiting, 0, n)
	if r.lost > 0 {
		if due = time.Until(r.counted.Add(lostEvery)); due <= 0 {
			report.Lost, r.lost, r.counted, due = r.lost, 0, time.Now(), 0
		}
	}
	return report, due, n > 0 || report.Lost > 0
}

// unheard puts back that something was lost.
func (r *reports) unheard(report sdk.NetworkReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost += report.Lost + int64(len(report.Connections))
}

func (r *reports) follow(ctx context.Context, hand func(sdk.NetworkReport) error) error {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.turn }()
	late := time.NewTimer(0)
	defer late.Stop()
	for {
		report, due, ok := r.take()
		if ok {
			if err := hand(report); err != nil {
				r.unheard(report)
				return err
			}
			continue
		}
		late.Stop()
		if due > 0 {
			late.Reset(due)
		}
		select {
		case <-r.news:
		case <-late.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// bounded is text of an instance that can stand in a report.
func bounded(text string) string {
	text = strings.ToValidUTF8(text, "?")
	for len(text) > sdk.MaxNetworkText {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, text)
}
