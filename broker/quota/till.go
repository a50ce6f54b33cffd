package quota

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// lookEvery is how often it is looked up what other brokers want, of which nothing may have
	// been heard, and how long a reserve may lie that nobody takes from.
	lookEvery = time.Second
	// lookPause lies between two looks for what was heard: this broker hears itself too.
	lookPause = 10 * time.Millisecond
	// askAgain is when the ledger is asked again for what other brokers may be giving back.
	askAgain = 50 * time.Millisecond
	// patience is how long that goes on: a broker that hears nothing gives back what it does not
	// use within two seconds.
	patience = 2500 * time.Millisecond
	// settling is how long it goes on where there is nothing to be had: what has just ended at
	// another broker is told by that within milliseconds.
	settling = 300 * time.Millisecond
	// holdTimeout bounds a round.
	holdTimeout = 5 * time.Second
	// maxClaims is how many claims go in one transaction.
	maxClaims = 256
)

// till asks the ledger for what is lacking, gives back what is not used, and hands over what
// other brokers want: one round after the other, with all that has come up meanwhile.
type till struct {
	keeper *Keeper
	ledger Ledger
	bell   chan struct{}
	heard  chan struct{}
	end    context.CancelFunc
	ended  sync.WaitGroup

	// Guarded by Keeper.mu.
	due  map[*account]struct{} // that may have something to tell
	asks []*ask
	gone []Key // of tenants that are no more
}

// ask is a request that needs more than is held.
type ask struct {
	account *account
	needs   []need
	arrived time.Time
	since   time.Time
	// try has the request take what it needs, with mu held. It returns what stands in the way.
	try     func() *Refusal
	outcome chan error
}

// Share has the keeper share the limits with the other brokers on a ledger from now on. What
// is in use is told to them first.
func (k *Keeper) Share(ctx context.Context, ledger Ledger) error {
	left, err := ledger.Holdings(ctx)
	if err != nil {
		return err
	}
	t := &till{keeper: k, ledger: ledger, bell: make(chan struct{}, 1), heard: make(chan struct{}, 1), due: map[*account]struct{}{}}
	k.mu.Lock()
	k.till = t
	for _, a := range k.accounts {
		t.open(a)
		a.tellAll()
	}
	for _, h := range left {
		a := k.accounts[h.Tenant]
		if a == nil || !slices.Contains(sharedLimits, h.Limit) {
			t.gone = append(t.gone, h.Key)
		} else if _, _, period := a.reading(h.Limit); period == h.Period {
			a.share(h.Limit, period).tell = true
			t.note(a)
		}
	}
	k.mu.Unlock()
	if _, err := t.round(ctx, false); err != nil {
		return err
	}
	if err := t.look(ctx); err != nil {
		return err
	}
	running, end := context.WithCancel(context.Background())
	t.end = end
	t.ended.Go(func() { t.run(running) })
	t.ended.Go(func() { ledger.Listen(running, func() { ring(t.heard) }) })
	return nil
}

// open has an account share. The caller holds mu.
func (t *till) open(a *account) { a.shares, a.due = map[Limit]*share{}, t.note }

// note has the account looked at in the next round. The caller holds mu.
func (t *till) note(a *account) {
	t.due[a] = struct{}{}
	ring(t.bell)
}

// forget gives back what is held for a tenant that is no more. The caller holds mu.
func (t *till) forget(a *account) {
	for limit, s := range a.shares {
		t.gone = append(t.gone, Key{a.tenant, limit, s.period})
	}
	a.shares = nil
	ring(t.bell)
}

// close gives back all that is not in use.
func (t *till) close() {
	t.end()
	t.ended.Wait()
}

func (t *till) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	again := time.NewTimer(0)
	defer again.Stop()
	listen := time.NewTimer(0)
	defer listen.Stop()
	for heard := t.heard; ; {
		look, second := false, false
		select {
		case <-t.bell:
		case <-again.C:
		case <-listen.C:
			heard = t.heard
			continue
		case <-heard:
			look = true
			heard = nil
			listen.Reset(lookPause)
		case <-tick.C:
			look, second = true, true
		case <-ctx.Done():
			t.leave(context.WithoutCancel(ctx))
			return
		}
		if look {
			_ = t.look(ctx) // who asks is told that the database is away
		}
		if pending, _ := t.round(ctx, second); pending {
			again.Reset(askAgain)
		}
	}
}

// look finds out what other brokers want, which is theirs unless it is in use here, and has
// asked again for those who wait.
func (t *till) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	keys, brokers, err := t.ledger.Wanted(ctx)
	if err != nil {
		return err
	}
	wanted := map[Key]bool{}
	for _, key := range keys {
		wanted[key] = true
	}
	k := t.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, a := range k.accounts {
		for limit, s := range a.shares {
			s.wanted = wanted[Key{a.tenant, limit, s.period}]
			if used, _, period := a.reading(limit); s.wanted && period == s.period {
				s.tell = s.tell || s.told != used
				t.note(a)
			}
		}
	}
	for _, a := range k.turns {
		a.lineLacks()
	}
	if brokers = max(1, brokers); brokers != k.brokers {
		k.brokers = brokers
		for _, a := range k.accounts {
			a.setLimits(a.limits, brokers, k.now())
		}
	}
	return nil
}

// ask has try called once more of what is needed is held. It is called again as long as other
// brokers may give something back; the error is what stands in the way after that.
func (t *till) ask(ctx context.Context, a *account, needs []need, arrived time.Time, try func() *Refusal) error {
	k := t.keeper
	q := &ask{account: a, needs: needs, arrived: arrived, since: time.Now(), try: try, outcome: make(chan error, 1)}
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return shuttingDown()
	}
	t.asks = append(t.asks, q)
	k.mu.Unlock()
	ring(t.bell)
	select {
	case err := <-q.outcome:
		return err
	case <-ctx.Done():
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case err := <-q.outcome: // at the last moment
		return err
	default:
		t.asks = slices.DeleteFunc(t.asks, func(other *ask) bool { return other == q })
		return ctx.Err()
	}
}

// claimed is a claim with whose it is; nil for a tenant's that is no more.
type claimed struct {
	Claim
	account *account
}

// round makes what has to be claimed, and says whether somebody goes on asking. second says
// that it is the one of every second.
func (t *till) round(ctx context.Context, second bool) (pending bool, err error) {
	k := t.keeper
	k.mu.Lock()
	asks := slices.SortedStableFunc(slices.Values(t.asks), func(a, b *ask) int { return a.arrived.Compare(b.arrived) })
	claims := t.gather(asks, second)
	k.mu.Unlock()
	began := time.Now()
	held, err := t.hold(ctx, claims)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		t.failed(claims)
	} else {
		t.enter(claims, held, began)
	}
	return t.answer(asks, held, err), err
}

// hold makes the claims, some at a time.
func (t *till) hold(ctx context.Context, claims []claimed) ([]Holding, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	var all []Holding
	for some := range slices.Chunk(claims, maxClaims) {
		plain := make([]Claim, len(some))
		for n, c := range some {
			plain[n] = c.Claim
		}
		held, err := t.ledger.Hold(ctx, plain)
		if err != nil {
			return nil, err
		}
		all = append(all, held...)
	}
	return all, nil
}

// follow has a request whose tenant was removed be one of the tenant that there is of that name
// now. The caller holds mu.
func (t *till) follow(q *ask) {
	if q.account.shares == nil {
		q.account = t.keeper.account(q.account.tenant)
	}
}

// gather returns what is to be claimed. The caller holds mu.
func (t *till) gather(asks []*ask, second bool) []claimed {
	k := t.keeper
	var claims []claimed
	for _, key := range t.gone {
		claims = append(claims, claimed{Claim: Claim{Key: key}})
	}
	t.gone = nil
	wants := map[*account]map[Limit]want{}
	for _, q := range asks {
		t.follow(q)
		if wants[q.account] == nil {
			wants[q.account] = map[Limit]want{}
		}
		for _, n := range q.needs {
			w := wants[q.account][n.limit]
			wants[q.account][n.limit] = want{w.sum + n.amount, min(cmp.Or(w.least, n.amount), n.amount), max(w.unit, n.amount)}
		}
		t.due[q.account] = struct{}{}
	}
	if second {
		for _, a := range k.accounts {
			t.due[a] = struct{}{}
		}
	}
	for a := range t.due {
		if a.shares == nil {
			continue
		}
		a.roll(k.now())
		for _, limit := range sharedLimits {
			if c, is := a.claim(limit, wants[a][limit], second); is {
				claims = append(claims, claimed{c, a})
			}
		}
	}
	clear(t.due)
	return claims
}

// want is what those together want who ask for a limit, and the least and the most that one of
// them does.
type want struct{ sum, least, unit int64 }

// claim returns what is to be claimed of a limit, if anything is. The caller holds mu.
func (a *account) claim(limit Limit, w want, second bool) (c Claim, is bool) {
	used, most, period := a.reading(limit)
	if a.shares[limit] == nil && (w.sum == 0 || most == 0) {
		return c, false
	}
	s := a.share(limit, period)
	c = Claim{Key: Key{a.tenant, limit, period}, Most: most, Used: used, Want: w.sum, Least: w.least, Lasting: limit.lasts(), Waits: a.waits(limit)}
	if most == 0 { // it has no limit any more
		delete(a.shares, limit)
		return Claim{Key: c.Key}, true
	}
	lacks := w.sum > 0 || s.lacks && len(c.Waits) > 0
	fades := !limit.lasts() && time.Since(s.confirmed) > goodFor/2 && s.held > used
	more := lacks || s.refill || second && s.taken && fades
	back := s.held > used && (s.wanted || second && !s.taken && !lacks)
	if second {
		s.taken = false
	}
	s.lacks, s.asked = false, len(c.Waits) > 0
	if !more && !back && !s.tell {
		return c, false
	}
	if s.wanted || back || s.reserve(limit, used) <= 0 {
		s.held = used
	}
	c.Keep = s.held
	if s.unit = cmp.Or(w.unit, s.unit, 1); more && !s.wanted {
		s.grow()
		c.Spare = min(s.batch, most/s.unit) * s.unit
	}
	s.tell, s.refill = false, false
	return c, true
}

// enter notes what is held, and serves who waits for it. The caller holds mu.
func (t *till) enter(claims []claimed, held []Holding, began time.Time) {
	served := map[*account]bool{}
	for n, h := range held {
		a := claims[n].account
		if a == nil || a.shares == nil {
			continue
		}
		used, most, period := a.reading(h.Limit)
		if most == 0 || period != h.Period {
			continue
		}
		s := a.share(h.Limit, period)
		c := claims[n].Claim
		s.held += h.Held - c.Keep // it may have become less meanwhile
		s.told, s.confirmed, s.others, s.wanted = c.Used, began, h.Others, h.Wanted
		s.granted = max(0, s.held-used)
		if c.Spare > 0 {
			s.tight = h.Held <= max(c.Keep, c.Used+int64(len(c.Waits))+c.Want)
		}
		if len(a.line) > 0 {
			served[a] = true
		}
	}
	for a := range served {
		t.keeper.serve(a)
	}
}

// failed has told again what the ledger may not have. The caller holds mu.
func (t *till) failed(claims []claimed) {
	for _, c := range claims {
		switch a := c.account; {
		case a == nil:
			t.gone = append(t.gone, c.Key)
		case a.shares == nil:
		case a.shares[c.Limit] == nil:
			t.gone = append(t.gone, c.Key)
		default:
			a.shares[c.Limit].tell = true
		}
	}
}

// answer lets those who ask take what they need, who came first first, and says whether some go
// on asking. The caller holds mu.
func (t *till) answer(asks []*ask, held []Holding, err error) (pending bool) {
	slack := map[Key]int64{}
	for _, h := range held {
		slack[h.Key] = h.Slack
	}
	for _, q := range asks {
		at := slices.Index(t.asks, q)
		if at < 0 {
			continue // it has left
		}
		t.follow(q)
		outcome := err
		if outcome == nil {
			switch refusal := q.try(); {
			case refusal == nil:
			case !refusal.short:
				outcome = refusal
			default:
				used, _, period := q.account.reading(refusal.Limit)
				coming, asked := slack[Key{q.account.tenant, refusal.Limit, period}]
				since := time.Since(q.since)
				if since < patience && (coming > 0 || !asked) || since < settling && !refusal.Limit.lasts() {
					pending = true
					continue
				}
				final := *refusal
				final.short = false
				final.Used = refusal.Limit.amount(used + q.account.share(refusal.Limit, period).others)
				q.account.refused[refusal.Limit]++
				outcome = &final
			}
		}
		t.asks = slices.Delete(t.asks, at, at+1)
		q.outcome <- outcome
	}
	for _, q := range asks {
		for limit, s := range q.account.shares {
			if used, _, period := q.account.reading(limit); s.wanted && s.period == period && s.held > used {
				t.note(q.account) // what was not taken is others'
			}
		}
	}
	return pending
}

// leave refuses who asks, and gives back all that is not in use.
func (t *till) leave(ctx context.Context) {
	k := t.keeper
	k.mu.Lock()
	for _, q := range t.asks {
		q.outcome <- shuttingDown()
	}
	t.asks = nil
	for _, a := range k.accounts {
		for _, s := range a.shares {
			s.taken = false
		}
	}
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	_, _ = t.round(ctx, true) // what is not given back counts as used until the next start
}

// leaveTimeout bounds the end.
const leaveTimeout = 2 * time.Second
