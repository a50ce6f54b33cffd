// Package broker puts the daemon together: it takes a configuration, starts the
// providers, serves the API and stops everything in order. Run is its entry.
//
// Each concern is a package below: api (REST), instance (life of sandboxes),
// tenant (who asks), pluginhost (plugin processes), background (goroutines with
// an owner). They do not know each other except through small interfaces; this
// package knows them all.
package broker
