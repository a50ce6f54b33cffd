package broker

import (
	"slices"

	"github.com/sandbox-broker/sandbox-broker/broker/admin"
)

var _ admin.Broker = (*catalog)(nil)

// AdminTokens implements admin.Broker.
func (c *catalog) AdminTokens() [][32]byte {
	if g := c.generation(); g.cfg != nil {
		return g.cfg.Admin.TokenSHA256
	}
	return nil
}

// AdminProviders implements admin.Broker.
func (c *catalog) AdminProviders() []admin.Provider {
	c.mu.Lock()
	current, draining := c.generation().current, c.draining
	c.mu.Unlock()
	active := c.Active()
	var list []admin.Provider
	for _, r := range current {
		p := admin.Provider{
			Label: r.Label(), Active: r.Label() == active, Executable: r.Executable(), Description: r.Description(), State: r.State(),
			Standing: c.router.Standing(r.Label()),
		}
		for _, old := range draining {
			if old.Label() == r.Label() {
				p.Draining++
			}
		}
		list = append(list, p)
	}
	for _, old := range draining {
		at := slices.IndexFunc(list, func(p admin.Provider) bool { return p.Label == old.Label() })
		switch {
		case at < 0: // it was removed from the configuration
			list = append(list, admin.Provider{
				Label: old.Label(), Executable: old.Executable(), Description: old.Description(), State: old.State(),
				Standing: c.router.Standing(old.Label()), Draining: 1, Removed: true,
			})
		case list[at].Removed:
			list[at].Draining++
		}
	}
	return list
}
