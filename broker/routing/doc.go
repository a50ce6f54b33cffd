// Package routing decides which provider a new instance is asked of first, and
// learns from what becomes of it: it orders providers by a policy, measures how long
// their creations take, and has a circuit breaker for those whose creations fail.
//
// It makes nothing and knows no plugins: package instance asks the providers, in the
// order that a Router gives, and decides when another one may be asked. The breaker
// for plugins that die is in package pluginhost.
package routing
