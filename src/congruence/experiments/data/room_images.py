"""`rooms`: images of a room with one object, drawn by casting rays; they imitate Shapes3D.

The camera moves around the vertical axis on which the object stands. Every ray hits one surface, whose brightness is
ambient light plus Lambert's cosine. Hues enter only afterwards: an image is a weighted sum of three colours. The
weights depend on orientation, scale and shape alone, so images that differ only in hue share their rays.

Only correctly rounded operations (+ - * / sqrt, comparisons) act on single rays, one after the other and never across
rows: an image does not depend on the other images drawn with it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from congruence.arrays import Array, Float
from congruence.checks import require
from congruence.experiments.data._image_sets import FactorGrid, Renderer, for_slices
from congruence.experiments.data.factor_data import FactorImages

GRID = FactorGrid(  # of Shapes3D and of rooms
    names=("floor_hue", "object_hue", "orientation", "scale", "shape", "wall_hue"),
    kinds=("circular:10", "circular:10", "ordinal", "ordinal", "categorical", "circular:10"),
    sizes=(10, 10, 15, 8, 4, 10),
)
FLOOR_HUE, OBJECT_HUE, ORIENTATION, SCALE, SHAPE, WALL_HUE = range(6)
IMAGE_VALUES, IMAGE_VALUES_ON_CPU = 2**27, 2**20  # values of images drawn at a time
SHAPES = ("cube", "cylinder", "sphere", "capsule")
FLOOR, WALL, OBJECT = 0, 1, 2  # surfaces, in the order of the weights

HALF_ROOM = 6.0  # the walls stand at x, y = +-6
DISTANCE, HEIGHT = 5.6, 3.1  # of the camera from the axis, and above the floor
AIM = 1.05  # the height on the axis at which it points
VIEW = 0.44  # tangent of half the angle of view
CORNER = math.radians(45)  # at orientation 0 the camera points to the corner x = y = 6
LIGHT = np.array([-0.70, -0.28, 1.10]) / np.linalg.norm([-0.70, -0.28, 1.10])  # towards the light
AMBIENT, DIFFUSE = 0.42, 0.56  # together below 1, so that no colour is clipped
CONTACT = 0.45  # share of light that the floor loses directly under the object
SATURATION = 0.88
SAMPLES = 2  # rays per pixel, along each side
RAYS = 2**24  # at a time on a GPU
RAYS_ON_CPU = 2**18  # so that they stay in the cache

# Half-widths and heights at scale 1, chosen for similar sizes in the picture.
CUBE, CYLINDER, CYLINDER_TALL, SPHERE, CAPSULE, CAPSULE_TALL = 0.80, 0.85, 1.65, 0.98, 0.68, 2.10
FOOTPRINT = {"cube": 0.90, "cylinder": 0.85, "sphere": 0.60, "capsule": 0.50}  # radius of the darkened floor


def rooms(
    n: int | None = None, *, seed: int = 0, continuous: bool = False, side: int = 64, device: str = "auto"
) -> FactorImages:
    """Draw rooms with one object in the middle: a procedural imitation of Shapes3D with exact factors, no download.

    Factors, in this order: floor hue (10), object hue (10), orientation (15, of the camera, from -30 to 30 degrees),
    scale (8, from 0.75 to 1.25), shape (4: cube, cylinder, sphere, capsule) and wall hue (10). These are the factors
    and levels of Shapes3D, but the images differ: scores on one say little about scores on the other.

    Parameters
    ----------
    n : int, optional
        Number of images, drawn without replacement from the grid of all 480,000 combinations. By default all of them,
        row-major: the last factor changes fastest, so neighbours are similar. `n=480_000` gives all of them shuffled.
    seed : int
        Of the choice of images.
    continuous : bool
        Draw hues (from 0 to 1, circular), orientation (degrees) and scale uniformly from their ranges instead of from
        the grid; `factors` then holds these values. The shape stays one of four, as a number from 0 to 3.
    side : int
        Height and width in pixels.
    device : {"auto", "cpu", "cuda", "cuda:1", ...}
        Where images are drawn and stored; "auto" takes a GPU if torch finds one. Devices may differ by 1 of 255.
    """
    return ROOMS.make(n, seed=seed, continuous=continuous, side=side, device=device)


def draw_rooms(values: Float, side: int = 64, device: str = "cpu") -> Any:
    """Draw the rooms of given factors (n, 6), in the order of `GRID`, as uint8 (n, 3, side, side)."""
    torch = require("torch", "drawing images", "torch")
    places, which = _unique_rows(values[:, [ORIENTATION, SCALE, SHAPE]])
    shared = surface_weights(places, side, device) if len(places) <= len(values) // 2 else None
    colours = np.stack([hue_colours(values[:, j]) for j in (FLOOR_HUE, WALL_HUE, OBJECT_HUE)], 1)
    paint = torch.as_tensor(colours.astype(np.float32), device=device)[..., None, None]  # (n, surfaces, 3, 1, 1)
    index = torch.as_tensor(which, device=device)
    images = torch.empty((len(values), 3, side, side), dtype=torch.uint8, device=device)
    step = max(1, (IMAGE_VALUES_ON_CPU if device == "cpu" else IMAGE_VALUES) // (3 * side * side))
    step = step if shared is not None else min(step, rays_step(side, device))

    def colour(part: slice) -> None:
        weights = mean_weights(places[which[part]], side, device) if shared is None else shared[index[part]]
        image = weights[:, 0, None] * paint[part, 0]
        for surface in (1, 2):
            image += weights[:, surface, None] * paint[part, surface]
        images[part] = (image * 255 + 0.5).to(torch.uint8)

    for_slices(colour, len(values), step, device)
    return images


def _unique_rows(places: Float) -> tuple[Float, Array]:
    """The distinct rows of `places`, and the number of the one that each row equals."""
    code = np.zeros(len(places), np.int64)
    for column in places.T:
        values, ranks = np.unique(column, return_inverse=True)
        code = np.unique(code * len(values) + ranks.reshape(-1), return_inverse=True)[1].reshape(-1)
    _, first = np.unique(code, return_index=True)
    return places[first], code


def surface_weights(places: Float, side: int, device: str) -> Any:
    """Brightness of floor, walls and object in every pixel, (m, 3, side, side) float32.

    `places` (m, 3) are the orientation in degrees, the scale, and the shape as an index into `SHAPES`. An image is the
    sum over surfaces of the weight times the surface's colour.
    """
    torch = require("torch", "drawing images", "torch")
    weights = torch.empty((len(places), 3, side, side), dtype=torch.float32, device=device)

    def cast(part: slice) -> None:
        weights[part] = mean_weights(places[part], side, device)

    for_slices(cast, len(places), rays_step(side, device), device)
    return weights


def rays_step(side: int, device: str) -> int:
    """Number of images whose rays are cast at a time."""
    return max(1, (RAYS_ON_CPU if device == "cpu" else RAYS) // side**2)


def mean_weights(places: Float, side: int, device: str) -> Any:
    """As `surface_weights`, for all places at once: the mean over the rays of each pixel, summed in a fixed order."""
    torch = require("torch", "drawing images", "torch")
    total = torch.zeros((len(places), 3, side * side), dtype=torch.float32, device=device)
    for row in range(SAMPLES):
        for column in range(SAMPLES):
            shade, surface = cast_rays(places, side, device, ((column + 0.5) / SAMPLES, (row + 0.5) / SAMPLES))
            for which in (FLOOR, WALL, OBJECT):
                total[:, which] += shade * (surface == which)
    return (total / SAMPLES**2).reshape(len(places), 3, side, side)


def cast_rays(places: Float, side: int, device: str, within: tuple[float, float] = (0.5, 0.5)) -> tuple[Any, Any]:
    """Brightness and surface (`FLOOR`, `WALL` or `OBJECT`) that one ray per pixel hits, each (m, side^2).

    `within` is the position of the ray inside its pixel, from the left and from the top.
    """
    torch = require("torch", "drawing images", "torch")

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
    """Ray directions of a camera that points along x, one per pixel: forward, right and up, each (side^2,)."""
    columns = (np.arange(side) + within[0]) / side * 2 - 1
    rows = 1 - (np.arange(side) + within[1]) / side * 2
    u, v = (x.reshape(-1) * VIEW for x in np.meshgrid(columns, rows))
    pitch = math.atan2(AIM - HEIGHT, DISTANCE)
    forward, up = math.cos(pitch) - v * math.sin(pitch), math.sin(pitch) + v * math.cos(pitch)
    length = np.sqrt(forward**2 + u**2 + up**2)
    return forward / length, u / length, up / length


def _room(torch: Any, eye: Any, ray: Any) -> tuple[Any, Any, Any]:
    """Brightness and surface of the empty room, and the distance to it."""
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
    """The share of light that reaches the floor where rays hit it: less near the foot of the object."""
    down = -HEIGHT / torch.where(ray[2] < 0, ray[2], -1.0)
    x, y = eye[0] + ray[0] * down, eye[1] + ray[1] * down
    reach = FOOTPRINT[name] * scale
    beyond = (x * x + y * y) / (reach * reach)
    return 1 - CONTACT / (1 + 0.5 * beyond * beyond)


def _over(torch: Any, a: Any, b: Any) -> Any:
    """Divide a by b; infinite where the ray is parallel to the plane."""
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
    """The distance to an infinite vertical tube around the axis, and the point where the ray hits it."""
    a = ray[0] * ray[0] + ray[1] * ray[1]
    b = eye[0] * ray[0] + eye[1] * ray[1]
    c = eye[0] * eye[0] + eye[1] * eye[1] - radius * radius
    near = _first_root(torch, a, b, c)
    far = torch.where(torch.isinf(near), 0.0, near)
    return near, eye[0] + ray[0] * far, eye[1] + ray[1] * far, eye[2] + ray[2] * far


def _ball(torch: Any, eye: Any, ray: Any, radius: Any, centre: Any) -> tuple[Any, Any]:
    """The distance to a ball on the axis, and the normal where the ray hits it."""
    below = eye[2] - centre
    b = eye[0] * ray[0] + eye[1] * ray[1] + below * ray[2]
    c = eye[0] * eye[0] + eye[1] * eye[1] + below * below - radius * radius
    near = _first_root(torch, torch.ones_like(b), b, c)
    far = torch.where(torch.isinf(near), 0.0, near)
    return near, [(eye[0] + ray[0] * far) / radius, (eye[1] + ray[1] * far) / radius, (below + ray[2] * far) / radius]


def _first_root(torch: Any, a: Any, b: Any, c: Any) -> Any:
    """The smaller root of a t^2 + 2 b t + c; infinite where there is no positive one."""
    inside = b * b - a * c
    root = (-b - torch.sqrt(torch.clamp(inside, min=0))) / torch.where(a > 0, a, 1.0)
    return torch.where((inside > 0) & (root > 0) & (a > 0), root, math.inf)


_OBJECTS = {"cube": _cube, "cylinder": _cylinder, "sphere": _sphere, "capsule": _capsule}


def hue_colours(hues: Array) -> Float:
    """Red, green and blue of colours with full brightness and `SATURATION`, hues (n,) in [0, 1] -> (n, 3) in [0, 1]."""
    sixths = (6 * np.asarray(hues, float)[:, None] + np.array([0.0, 4.0, 2.0])) % 6
    colours: Float = 1 - SATURATION * (1 - np.clip(np.abs(sixths - 3) - 1, 0, 1))
    return colours


ROOMS = Renderer(
    name="rooms",
    grid=GRID,
    ranges=((0, 1), (0, 1), (-30, 30), (0.75, 1.25), (0, 3), (0, 1)),
    channels=3,
    note="a twin of Shapes3D (Burgess and Kim 2018), drawn by this package; not the original",
    draw=draw_rooms,
    words=SHAPES,
)
