package sdk

import "context"

// Adopter is implemented by providers whose instances are bound to no machine: whoever has
// the account can serve them. When one of several brokers dies that share their state,
// another one with the same account makes the dead one's instances its own. A provider that
// is Ephemeral is no Adopter.
type Adopter interface {
	// ListOf is List for the instances that carry the ID of another broker, which had a
	// provider of the same label. The broker adopts what it lists and nothing else: an
	// account that does not have it is another one.
	ListOf(ctx context.Context, brokerID string) ([]Instance, error)

	// Adopt makes an instance this broker's that carries the ID of another one, or of this
	// one. From then on List has it, with this broker's ID as LabelBroker, and all methods
	// serve it, until this process ends: the next one is asked again. Where the back end can
	// change what an instance carries, it carries this broker's ID afterwards. What runs in the
	// instance goes on. It is idempotent. Return CodeNotFound for one that is not there, or that
	// carries yet another ID.
	Adopt(ctx context.Context, instanceID, brokerID string) error

	// Release is called for an instance that carries this broker's ID, and is another
	// broker's by now. The provider does nothing to it any more by itself, such as extending
	// its life, and List has it no more, until this process ends. Adopt may make it this
	// broker's again. It is idempotent, and one that is not known is a success.
	Release(ctx context.Context, instanceID string) error
}
