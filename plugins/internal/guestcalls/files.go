package guestcalls

import (
	"context"
	"io"
	"io/fs"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// The guest serves files; here the calls only find it.
var (
	_ sdk.Files          = (*Calls)(nil)
	_ sdk.FileSearcher   = (*Calls)(nil)
	_ sdk.FileWatcher    = (*Calls)(nil)
	_ sdk.FileModeSetter = (*Calls)(nil)
	_ sdk.Archiver       = (*Calls)(nil)
)

// StatFile implements sdk.Files.
func (c *Calls) StatFile(ctx context.Context, instanceID, path string) (info sdk.FileInfo, err error) {
	err = c.ask(ctx, instanceID, func(guest *wire.Client) (err error) {
		info, err = guest.StatFile(ctx, instanceID, path)
		return err
	})
	return info, err
}

// ListFiles implements sdk.Files.
func (c *Calls) ListFiles(ctx context.Context, req sdk.ListFilesRequest, found func([]sdk.FileInfo) error) (truncated bool, err error) {
	err = c.ask(ctx, req.InstanceID, func(guest *wire.Client) (err error) {
		truncated, err = guest.ListFiles(ctx, req, found)
		return err
	})
	return truncated, err
}

// ReadFile implements sdk.Files.
func (c *Calls) ReadFile(ctx context.Context, req sdk.ReadFileRequest) (info sdk.FileInfo, content io.ReadCloser, err error) {
	content, err = c.read(ctx, req.InstanceID, func(guest *wire.Client) (content io.ReadCloser, err error) {
		info, content, err = guest.ReadFile(ctx, req)
		return content, err
	})
	return info, content, err
}

// WriteFile implements sdk.Files.
func (c *Calls) WriteFile(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (info sdk.FileInfo, err error) {
	err = c.ask(ctx, req.InstanceID, func(guest *wire.Client) (err error) {
		info, err = guest.WriteFile(ctx, req, content)
		return err
	})
	return info, err
}

// MakeDirectory implements sdk.Files.
func (c *Calls) MakeDirectory(ctx context.Context, instanceID, path string, mode fs.FileMode) (info sdk.FileInfo, err error) {
	err = c.ask(ctx, instanceID, func(guest *wire.Client) (err error) {
		info, err = guest.MakeDirectory(ctx, instanceID, path, mode)
		return err
	})
	return info, err
}

// MoveFile implements sdk.Files.
func (c *Calls) MoveFile(ctx context.Context, req sdk.MoveFileRequest) (info sdk.FileInfo, err error) {
	err = c.ask(ctx, req.InstanceID, func(guest *wire.Client) (err error) {
		info, err = guest.MoveFile(ctx, req)
		return err
	})
	return info, err
}

// CopyFile implements sdk.Files.
func (c *Calls) CopyFile(ctx context.Context, req sdk.MoveFileRequest) (info sdk.FileInfo, err error) {
	err = c.ask(ctx, req.InstanceID, func(guest *wire.Client) (err error) {
		info, err = guest.CopyFile(ctx, req)
		return err
	})
	return info, err
}

// RemoveFile implements sdk.Files.
func (c *Calls) RemoveFile(ctx context.Context, instanceID, path string, recursive bool) error {
	return c.ask(ctx, instanceID, func(guest *wire.Client) error {
		return guest.RemoveFile(ctx, instanceID, path, recursive)
	})
}

// SearchFiles implements sdk.FileSearcher.
func (c *Calls) SearchFiles(ctx context.Context, req sdk.SearchFilesRequest, found func([]sdk.FileMatch) error) (truncated bool, err error) {
	err = c.ask(ctx, req.InstanceID, func(guest *wire.Client) (err error) {
		truncated, err = guest.SearchFiles(ctx, req, found)
		return err
	})
	return truncated, err
}

// ReplaceInFiles implements sdk.FileSearcher.
func (c *Calls) ReplaceInFiles(ctx context.Context, req sdk.ReplaceInFilesRequest) (replaced []sdk.FileReplacement, err error) {
	err = c.ask(ctx, req.InstanceID, func(guest *wire.Client) (err error) {
		replaced, err = guest.ReplaceInFiles(ctx, req)
		return err
	})
	return replaced, err
}

// WatchFiles implements sdk.FileWatcher.
func (c *Calls) WatchFiles(ctx context.Context, req sdk.WatchFilesRequest, ready func() error, changed func([]sdk.FileChange) error) error {
	return c.waitFor(ctx, req.InstanceID, func(guest *wire.Client) error {
		return guest.WatchFiles(ctx, req, ready, changed)
	})
}

// SetFileMode implements sdk.FileModeSetter.
func (c *Calls) SetFileMode(ctx context.Context, instanceID, path string, mode fs.FileMode) (info sdk.FileInfo, err error) {
	err = c.ask(ctx, instanceID, func(guest *wire.Client) (err error) {
		info, err = guest.SetFileMode(ctx, instanceID, path, mode)
		return err
	})
	return info, err
}

// ReadArchive implements sdk.Archiver.
func (c *Calls) ReadArchive(ctx context.Context, req sdk.ReadArchiveRequest) (io.ReadCloser, error) {
	return c.read(ctx, req.InstanceID, func(guest *wire.Client) (io.ReadCloser, error) {
		return guest.ReadArchive(ctx, req)
	})
}

// WriteArchive implements sdk.Archiver.
func (c *Calls) WriteArchive(ctx context.Context, instanceID, directory string, content io.Reader) (summary sdk.ArchiveSummary, err error) {
	err = c.ask(ctx, instanceID, func(guest *wire.Client) (err error) {
		summary, err = guest.WriteArchive(ctx, instanceID, directory, content)
		return err
	})
	return summary, err
}
