package pool

import "time"

// demandWindow is how many seconds back demand is remembered.
const demandWindow = 60

// demand is how often a template was asked for within the last minute.
type demand struct {
	// share is how often it counts as asked for in every minute, whether it was or not:
	// a template that nobody wants for a while is not forgotten.
	share   int
	seconds [demandWindow]struct {
		second int64
		asked  int
	}
}

// note counts a request in the given second since the pool began.
func (d *demand) note(second int64) {
	at := &d.seconds[second%demandWindow]
	if at.second != second {
		at.second, at.asked = second, 0
	}
	at.asked++
}

// asked is how often the template was asked for in a second of the last minute.
func (d *demand) asked(second, now int64) int {
	if second < 0 || second <= now-demandWindow || second > now {
		return 0
	}
	if at := d.seconds[second%demandWindow]; at.second == second {
		return at.asked
	}
	return 0
}

// rate is how much of the pool the template deserves: its requests of the last minute,
// and its share.
func (d *demand) rate(now int64) float64 {
	sum := d.share
	for second := now - demandWindow + 1; second <= now; second++ {
		sum += d.asked(second, now)
	}
	return float64(sum)
}

// burst is the most requests of the last minute that came while so many seconds passed,
// which may have begun within a second.
func (d *demand) burst(now, seconds int64) int {
	most, sum := 0, 0
	for second := now - demandWindow + 1; second <= now; second++ {
		sum += d.asked(second, now) - d.asked(second-seconds-1, now)
		most = max(most, sum)
	}
	return most
}

// second is the present one since the pool began.
func (p *Pool[S]) second() int64 { return int64(time.Since(p.began) / time.Second) }

// makingSeconds is how long making a sandbox takes: 1 or more, and at most ten.
func (p *Pool[S]) makingSeconds() int64 {
	if p.counts.Made == 0 {
		return 1
	}
	return max(1, min(10, int64((p.counts.MakeTime/time.Duration(p.counts.Made)+time.Second-1)/time.Second)))
}

// want notes that somebody asks for a template.
func (p *Pool[S]) want(template string) {
	d := p.demand[template]
	if d == nil {
		d = &demand{}
		p.demand[template] = d
	}
	d.note(p.second())
}

// needs is how many sandboxes of each template are to be ready whatever it disturbs: as
// many as were asked for at once within the last minute, and one.
func (p *Pool[S]) needs(targets map[string]int) map[string]int {
	needs, now, seconds := map[string]int{}, p.second(), p.makingSeconds()
	for template, target := range targets {
		needs[template] = min(target, max(1, p.demand[template].burst(now, seconds)))
	}
	return needs
}
