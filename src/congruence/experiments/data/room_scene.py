"""A room with one object, drawn by casting rays: floor, walls and a cube, cylinder, sphere or capsule.

The camera walks around the vertical axis on which the object stands. Every ray meets one surface, whose brightness is
ambient light plus Lambert's cosine; hues come in only afterwards: a picture is a weighted sum of three colours. Where
things are depends on orientation, scale and shape alone, so that pictures which differ in hue share their rays.

Only operations that are rounded correctly (+ - * / sqrt, comparisons) touch single rays, one after the other and never
across rows: a picture does not depend on which others are drawn beside it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.experiments.data.images import import_torch
from congruence.experiments.data.in_parts import in_parts

SHAPES = ("cube", "cylinder", "sphere", "capsule")
FLOOR, WALL, OBJECT = 0, 1, 2  # surfaces, in the order of the weights

HALF_ROOM = 6.0  # the walls stand at x, y = +-6
DISTANCE, HEIGHT = 5.6, 3.1  # of the camera from the axis, and above the floor
AIM = 1.05  # the height on the axis at which it looks
VIEW = 0.44  # tangent of half the angle of view
CORNER = math.radians(45)  # at orientation 0 the camera looks into the corner x = y = 6
LIGHT = np.array([-0.70, -0.28, 1.10]) / np.linalg.norm([-0.70, -0.28, 1.10])  # towards the light
AMBIENT, DIFFUSE = 0.42, 0.56  # together below 1, so that no colour is cut off
CONTACT = 0.45  # share of light that the floor loses right under the object
SATURATION = 0.88
SAMPLES = 2  # rays per pixel, along each side
RAYS = 2**24  # at a time on a GPU
RAYS_ON_CPU = 2**18  # that stay in the cache

# Half-widths and heights at scale 1, chosen for similar sizes in the picture.
CUBE, CYLINDER, CYLINDER_TALL, SPHERE, CAPSULE, CAPSULE_TALL = 0.80, 0.85, 1.65, 0.98, 0.68, 2.10
FOOTPRINT = {"cube": 0.90, "cylinder": 0.85, "sphere": 0.60, "capsule": 0.50}  # radius of the darkened floor


def surface_weights(places: Float, side: int, device: str) -> Any:
    """How bright floor, walls and object are in every pixel.

    Parameters
    ----------
    places : (m, 3)
        Orientation in degrees, scale, and shape as its place in `SHAPES`.

    Returns
    -------
    (m, 3, side, side) float32 tensor
        A picture is the sum over surfaces of the weight times the surface's colour.
    """
    torch = import_torch("drawing rooms")
    weights = torch.empty((len(places), 3, side, side), dtype=torch.float32, device=device)

    def cast(part: slice) -> None:
        weights[part] = mean_weights(places[part], side, device)

    in_parts(cast, len(places), rays_step(side, device), device)
    return weights


def rays_step(side: int, device: str) -> int:
    """How many pictures are cast at a time."""
    return max(1, (RAYS_ON_CPU if device == "cpu" else RAYS) // side**2)


def mean_weights(places: Float, side: int, device: str) -> Any:
    """The same as `surface_weights`, all at once: the mean over the rays of each pixel, added in a fixed order."""
    torch = import_torch("drawing rooms")
    total = torch.zeros((len(places), 3, side * side), dtype=torch.float32, device=device)
    for row in range(SAMPLES):
        for column in range(SAMPLES):
            shade, surface = cast_rays(places, side, device, ((column + 0.5) / SAMPLES, (row + 0.5) / SAMPLES))
            for which in (FLOOR, WALL, OBJECT):
                total[:, which] += shade * (surface == which)
    return (total / SAMPLES**2).reshape(len(places), 3, side, side)


def cast_rays(places: Float, side: int, device: str, within: tuple[float, float] = (0.5, 0.5)) -> tuple[Any, Any]:
    """The brightness and the surface (`FLOOR`, `WALL` or `OBJECT`) that one ray per pixel meets, each (m, side^2).

    `within` is where in its pixel a ray starts, from the left and from the top.
    """
    torch = import_torch("drawing rooms")

    def tensor(x: Any) -> Any:
        return torch.as_tensor(np.ascontiguousarray(x, np.float32), device=device)

    turn = np.radians(places[:, 0]) + CORNER
    along, across = tensor(np.cos(turn)[:, None]), tensor(np.sin(turn)[:, None])
    forward, right, up = (tensor(part[None]) for part in _camera_rays(side, within))
    eye = -DISTANCE * along, -DISTANCE * across, HEIGHT
    ray = forward * along + right * across, forward * across - right * along, up
    shade, surface, far = _room(torch, eye, ray)
    scale = tensor(places[:, 1:2])
    for number, name in enumerate(SHAPES):
        chosen = np.flatnonzero(places[:, 2].astype(int) == number)
        if chosen.size:
            index = torch.as_tensor(chosen, device=device)
            some_eye, some_ray = (eye[0][index], eye[1][index], HEIGHT), (ray[0][index], ray[1][index], ray[2])
            near, normal = _OBJECTS[name](torch, some_eye, some_ray, scale[index])
            hit = near < far[index]
            lit = torch.where(hit, _lambert(torch, *normal), _darkened(torch, some_eye, some_ray, scale[index], name))
            shade[index] = torch.where(hit, lit, shade[index] * torch.where(surface[index] == FLOOR, lit, 1.0))
            surface[index] = torch.where(hit, OBJECT, surface[index])
    return shade, surface


def _camera_rays(side: int, within: tuple[float, float]) -> tuple[Float, Float, Float]:
    """Directions of the rays of a camera that looks along x, one per pixel: forward, to the right, up; (side^2,)."""
    columns = (np.arange(side) + within[0]) / side * 2 - 1
    rows = 1 - (np.arange(side) + within[1]) / side * 2
    u, v = (x.reshape(-1) * VIEW for x in np.meshgrid(columns, rows))
    pitch = math.atan2(AIM - HEIGHT, DISTANCE)
    forward, up = math.cos(pitch) - v * math.sin(pitch), math.sin(pitch) + v * math.cos(pitch)
    length = np.sqrt(forward**2 + u**2 + up**2)
    return forward / length, u / length, up / length


def _room(torch: Any, eye: Any, ray: Any) -> tuple[Any, Any, Any]:
    """Brightness and surface of the empty room, and how far away it is."""
    to_x, to_y = (_over(torch, torch.sign(d) * HALF_ROOM - o, d) for o, d in zip(eye[:2], ray[:2], strict=True))
    to_wall = torch.minimum(to_x, to_y)
    to_floor = torch.where(ray[2] < 0, -HEIGHT / torch.where(ray[2] < 0, ray[2], -1.0), math.inf)
    on_floor = to_floor < to_wall
    x_wall = AMBIENT + DIFFUSE * torch.clamp(-torch.sign(ray[0]) * float(LIGHT[0]), min=0)
    y_wall = AMBIENT + DIFFUSE * torch.clamp(-torch.sign(ray[1]) * float(LIGHT[1]), min=0)
    shade = torch.where(on_floor, AMBIENT + DIFFUSE * float(LIGHT[2]), torch.where(to_x < to_y, x_wall, y_wall))
    surface = torch.where(on_floor, FLOOR, WALL).to(torch.uint8)
    return shade, surface, torch.minimum(to_wall, to_floor)


def _lambert(torch: Any, x: Any, y: Any, z: Any) -> Any:
    light = [float(part) for part in LIGHT]
    return AMBIENT + DIFFUSE * torch.clamp(x * light[0] + y * light[1] + z * light[2], min=0)


def _darkened(torch: Any, eye: Any, ray: Any, scale: Any, name: str) -> Any:
    """The share of light that reaches the floor where rays meet it: less near the foot of the object."""
    down = -HEIGHT / torch.where(ray[2] < 0, ray[2], -1.0)
    x, y = eye[0] + ray[0] * down, eye[1] + ray[1] * down
    reach = FOOTPRINT[name] * scale
    beyond = (x * x + y * y) / (reach * reach)
    return 1 - CONTACT / (1 + 0.5 * beyond * beyond)


def _over(torch: Any, a: Any, b: Any) -> Any:
    """Divide a by b, infinite where a ray runs along a plane."""
    return torch.where(b == 0, math.inf, a / torch.where(b == 0, 1.0, b))


def _cube(torch: Any, eye: Any, ray: Any, scale: Any) -> tuple[Any, Any]:
    half = CUBE * scale
    entries, exits = [], []
    for o, d, low, high in (
        (eye[0], ray[0], -half, half),
        (eye[1], ray[1], -half, half),
        (eye[2], ray[2], 0.0, 2 * half),
    ):
        one, other = _over(torch, low - o, d), _over(torch, high - o, d)
        entries.append(torch.minimum(one, other))
        exits.append(torch.maximum(one, other))
    enter = torch.maximum(torch.maximum(entries[0], entries[1]), entries[2])
    leave = torch.minimum(torch.minimum(exits[0], exits[1]), exits[2])
    near = torch.where((enter < leave) & (enter > 0), enter, math.inf)
    faces = [torch.where(entry == enter, -torch.sign(d), 0.0) for entry, d in zip(entries, ray, strict=True)]
    return near, faces


def _cylinder(torch: Any, eye: Any, ray: Any, scale: Any) -> tuple[Any, Any]:
    radius, tall = CYLINDER * scale, CYLINDER_TALL * scale
    side, x, y, z = _tube(torch, eye, ray, radius)
    side = torch.where((z > 0) & (z < tall), side, math.inf)
    top = _over(torch, tall - eye[2], ray[2])
    a, b = eye[0] + ray[0] * top, eye[1] + ray[1] * top
    top = torch.where((a * a + b * b < radius * radius) & (top > 0), top, math.inf)
    on_top = top < side
    normal = [torch.where(on_top, 0.0, x / radius), torch.where(on_top, 0.0, y / radius), on_top.float()]
    return torch.minimum(side, top), normal


def _sphere(torch: Any, eye: Any, ray: Any, scale: Any) -> tuple[Any, Any]:
    radius = SPHERE * scale
    return _ball(torch, eye, ray, radius, radius)


def _capsule(torch: Any, eye: Any, ray: Any, scale: Any) -> tuple[Any, Any]:
    radius, tall = CAPSULE * scale, CAPSULE_TALL * scale
    side, x, y, z = _tube(torch, eye, ray, radius)
    near = torch.where((z > radius) & (z < tall - radius), side, math.inf)
    normal = [x / radius, y / radius, torch.zeros_like(x)]
    for centre in (radius, tall - radius):
        ball, way = _ball(torch, eye, ray, radius, centre)
        first = ball < near
        normal = [torch.where(first, new, old) for new, old in zip(way, normal, strict=True)]
        near = torch.minimum(near, ball)
    return near, normal


def _tube(torch: Any, eye: Any, ray: Any, radius: Any) -> tuple[Any, Any, Any, Any]:
    """How far an endless upright tube around the axis is, and where it is met."""
    a = ray[0] * ray[0] + ray[1] * ray[1]
    b = eye[0] * ray[0] + eye[1] * ray[1]
    c = eye[0] * eye[0] + eye[1] * eye[1] - radius * radius
    near = _first_root(torch, a, b, c)
    far = torch.where(torch.isinf(near), 0.0, near)
    return near, eye[0] + ray[0] * far, eye[1] + ray[1] * far, eye[2] + ray[2] * far


def _ball(torch: Any, eye: Any, ray: Any, radius: Any, centre: Any) -> tuple[Any, Any]:
    """How far a ball on the axis is, and its normal there."""
    below = eye[2] - centre
    b = eye[0] * ray[0] + eye[1] * ray[1] + below * ray[2]
    c = eye[0] * eye[0] + eye[1] * eye[1] + below * below - radius * radius
    near = _first_root(torch, torch.ones_like(b), b, c)
    far = torch.where(torch.isinf(near), 0.0, near)
    return near, [(eye[0] + ray[0] * far) / radius, (eye[1] + ray[1] * far) / radius, (below + ray[2] * far) / radius]


def _first_root(torch: Any, a: Any, b: Any, c: Any) -> Any:
    """The lesser root of a t^2 + 2 b t + c, infinite where there is none ahead."""
    inside = b * b - a * c
    root = (-b - torch.sqrt(torch.clamp(inside, min=0))) / torch.where(a > 0, a, 1.0)
    return torch.where((inside > 0) & (root > 0) & (a > 0), root, math.inf)


_OBJECTS = {"cube": _cube, "cylinder": _cylinder, "sphere": _sphere, "capsule": _capsule}


def hue_colours(hues: Array) -> Float:
    """Red, green and blue of fully bright colours of `SATURATION`, (n,) hues from 0 to 1 -> (n, 3) from 0 to 1."""
    sixths = (6 * np.asarray(hues, float)[:, None] + np.array([0.0, 4.0, 2.0])) % 6
    colours: Float = 1 - SATURATION * (1 - np.clip(np.abs(sixths - 3) - 1, 0, 1))
    return colours
