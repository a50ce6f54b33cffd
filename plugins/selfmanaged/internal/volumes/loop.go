package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const loopControl = "/dev/loop-control"

// attachTries is how often a free loop device is asked for, which another process may take
// in the meantime.
const attachTries = 32

// attach returns the loop device of the image in a directory: the one that it has already,
// of whatever process, since two devices of one image would destroy its file system. The
// device ends by itself with its last user; the caller closes the file when it has one.
func attach(dir string) (*os.File, error) {
	lock, err := waitForLock(filepath.Join(dir, attachFile))
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	image, err := os.OpenFile(filepath.Join(dir, imageFile), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(image.Fd()), &st); err != nil {
		return nil, err
	}
	if device, err := attached(st); device != nil || err != nil {
		return device, err
	}
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for range attachTries {
		device, err := configure(control, image)
		if !errors.Is(err, unix.EBUSY) {
			return device, err
		}
	}
	return nil, errors.New("no loop device becomes free")
}

// configure makes a free loop device that of an image.
func configure(control, image *os.File) (*os.File, error) {
	number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, fmt.Errorf("find a free loop device: %w", err)
	}
	device, err := os.OpenFile("/dev/loop"+strconv.Itoa(number), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	config := unix.LoopConfig{
		Fd:   uint32(image.Fd()),
		Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO},
	}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], filepath.Base(filepath.Dir(image.Name())))
	if err := unix.IoctlLoopConfigure(int(device.Fd()), &config); err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return device, nil
}

// attached returns the loop device that a file has, open; nil if it has none. As long as it
// is open it stays.
func attached(of unix.Stat_t) (*os.File, error) {
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		path := filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(name))))
		device, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue // it has ended meanwhile
		}
		info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
		if err == nil && info.Device == of.Dev && info.Inode == of.Ino {
			return device, nil
		}
		_ = device.Close()
	}
	return nil, nil
}
