"""Who is here: sessions of this instance, how they join and leave, how they are woken and looked after."""
