// Package localfiles keeps the contract of sdk.Files, sdk.FileSearcher,
// sdk.FileWatcher, sdk.FileModeSetter and sdk.Archiver for instances whose files are
// directories of this machine. A provider embeds Files, and has the five capabilities:
//
//	type Provider struct {
//		*localfiles.Files
//		…
//	}
//
//	p.Files = localfiles.New(localfiles.Options{Directory: p.directory})
//
// Code in the instance may be hostile, and change names and links at any moment: all
// access goes through os.Root, so that nothing leads out of the place that a path is
// in. Lists, searches, copies and archives end with their context, and are bounded.
//
// Everything is done with the rights of the plugin. Where code runs as another user,
// or in a file system of its own, this package is not enough.
package localfiles
