// Package routing decides which provider a new instance is asked of first, and
// learns from what becomes of it: it orders providers by a policy, measures how long
// their creations take, and has a circuit breaker for those whose creations fail.
//
// It says what a provider is to the broker (Provider, Catalog, Offer), whether one fits a
// request (Wanted), which of them a request may still ask (Shortlist), and how long it waits
// for one of them to be ready (Wait).
//
// It makes nothing, waits for nothing and knows no plugins: package instance asks the
// providers, and decides when another one may be asked. The breaker for plugins that die
// is in package pluginhost.
package routing
