package quota

// CountVolumes says who counts the volumes of a tenant and their bytes: Usage asks there.
func (k *Keeper) CountVolumes(count func(tenant string) (volumes, bytes int64)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.countVolumes = count
}

// AdmitVolume refuses one more volume of a size, in bytes, beside those that a tenant has.
// The error is a *Refusal. Who counts them is the caller, one volume at a time.
func (k *Keeper) AdmitVolume(tenant string, have, bytes, size int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.account(tenant)
	refuse := func(limit Limit, most, used, need int64) error {
		a.refused[limit]++
		return &Refusal{Tenant: tenant, Limit: limit, Max: float64(most), Used: float64(used), Need: float64(need)}
	}
	switch l := a.limits; {
	case l.Volumes > 0 && have >= l.Volumes:
		return refuse(MaxVolumes, l.Volumes, have, 1)
	case l.VolumeBytes > 0 && size > l.VolumeBytes-bytes:
		return refuse(MaxVolumeBytes, l.VolumeBytes, bytes, size)
	default:
		return nil
	}
}
