package templates

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

// StorePins keeps pins in the broker's state file.
type StorePins struct {
	store  store.State
	logger hclog.Logger
}

var _ Pins = (*StorePins)(nil)

// NewStorePins returns the pins in a store.
func NewStorePins(s store.State, logger hclog.Logger) *StorePins {
	return &StorePins{store: s, logger: logger}
}

// Load implements Pins. One that cannot be read is as good as none: the image is looked up
// anew.
func (p *StorePins) Load() (map[string]Pin, error) {
	pins := map[string]Pin{}
	err := p.store.View(func(tx store.Tx) error {
		return store.Each(tx, store.Templates, func(name string, pin Pin, err error) error {
			if err != nil {
				p.logger.Error("what the image of a template was found to be cannot be read; it is looked up anew", "template", name, "error", err)
				return nil
			}
			pins[name] = pin
			return nil
		})
	})
	return pins, err
}

// Save implements Pins.
func (p *StorePins) Save(ctx context.Context, name string, pin Pin) error {
	return p.store.Update(ctx, func(tx store.Tx) error { return store.Put(tx, store.Templates, name, pin) })
}

// Forget implements Pins.
func (p *StorePins) Forget(ctx context.Context, used func(name string) bool) error {
	var unused []string
	err := p.store.View(func(tx store.Tx) error {
		return store.Each(tx, store.Templates, func(name string, _ Pin, _ error) error {
			if !used(name) {
				unused = append(unused, name)
			}
			return nil
		})
	})
	if err != nil || len(unused) == 0 {
		return err
	}
	return p.store.Update(ctx, func(tx store.Tx) error {
		for _, name := range unused {
			if err := store.Delete(tx, store.Templates, name); err != nil {
				return err
			}
		}
		return nil
	})
}
