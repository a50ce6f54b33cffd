// Package gateway is the way out of instances that have no network of their own: it takes the
// connections that come out of an instance, reads what they want, and makes those that the
// policy of the instance allows. A provider that can lead connections out of its instances
// implements sdk.NetworkGovernor with it.
//
// Gateway is what the instances of a provider share: the counts of tenants, and the reports.
// Each has an Instance, whose ServeProxy takes a connection of a program that knows of a proxy,
// and ServeDirect one of a program that wanted a host. How an instance's programs come by such a
// connection is the provider's business.
//
// What comes from an instance is believed in nothing, and read on this side alone. A name is
// resolved once for a connection, and the address that was looked at is the one that is dialled.
// HTTP is read strictly and written anew, so that both sides read the same. TLS is passed on as
// it is where the name in its beginning is the host that was asked for; where a rule says more,
// or a secret is to be put in, it is ended here, with an authority that this instance alone
// believes.
package gateway
