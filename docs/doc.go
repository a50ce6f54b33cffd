// Package docs holds the pages for people, and the tests that keep what they
// say true: links, targets of make, error codes, pieces of configuration and of
// Go, the list of dependencies. Sections marked "generated" are rewritten with
//
//	go test ./docs ./broker/instance/registry ./config/reference ./e2e/hostile ./plugins/selfmanaged/guest/codepolicy ./plugins/selfmanaged/internal/provider ./plugins/e2b/internal/provider ./plugins/aliyun/internal/provider -run Page -update
//
// The commands in README.md and in the pages for agents are run by package e2e, the quick
// starts by package e2e/quickstart. Package site below makes pages for a browser.
package docs
