// Package reconcile brings the registry of instances into agreement with what their
// providers have: it adopts what an earlier process of the broker left, ends what a
// provider does not have any more, and destroys orphans, which nobody knows.
//
// Start with Reconciler.Started, which is called for each plugin that has just started,
// and with Run, which asks all providers again and again. Lists of a provider are shared
// by those who want to know at the same time (Reconciler.List).
package reconcile
