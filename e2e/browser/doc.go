// Package browser tries previews by host in a real browser, headless Chromium, with
// programs that must stand at the root of an address: Vite, whose packages npm installs
// as testdata/vite pins them, and Jupyter of Debian. The tests are skipped where one of
// these is not installed, and fail in CI.
package browser
