package provider

import "time"

// NameOf is the name of a sandbox that Create makes for a key.
func (p *Provider) NameOf(key string) string { return p.nameOf(key, 0) }

// IdleOf is how long the service lets a sandbox be, by its record.
func (p *Provider) IdleOf(id string) time.Duration {
	one, _ := p.records.Get(id)
	return one.Idle
}

// ParallelLooks is how many sandboxes List looks at at once.
const ParallelLooks = parallelLooks
